# Prior degrees of freedom and variance of within-school variances of Chem97 (mlmRev), by limma.
# Printed: df.prior 1.185751, var.prior 2.156506 (tests/location/test_variance.py).
library(limma)
rows <- read.csv("chem97.csv.gz")
variance <- tapply(rows$score, rows$school, var)
n <- tapply(rows$score, rows$school, length)
some <- n > 1
squeezed <- squeezeVar(variance[some], df = n[some] - 1, legacy = TRUE)
print(c(squeezed$df.prior, squeezed$var.prior), digits = 7)
