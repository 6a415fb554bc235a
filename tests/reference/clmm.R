# Fit the ratings of ordinal::wine by clmm(), quadrature with 25 nodes; write clmm.csv and wine.csv.
# Run as: Rscript clmm.R
library(ordinal)
library(numDeriv)

args <- commandArgs(trailingOnly = FALSE)
setwd(dirname(sub("^--file=", "", grep("^--file=", args, value = TRUE))))
rows <- wine[c("rating", "temp", "contact", "judge")]
write.csv(rows, "wine.csv", row.names = FALSE, quote = FALSE)

control <- clmm.control(gradTol = 1e-9, maxIter = 200)
found <- NULL
for (text in c("rating ~ temp + contact + (1 | judge)", "rating ~ 1 + (1 | judge)")) {
  fit <- clmm(as.formula(text), rows, nAGQ = 25, Hess = TRUE, control = control)
  se <- sqrt(diag(vcov(fit)))
  n <- length(fit$alpha) + length(fit$beta)
  found <- rbind(found, data.frame(
    formula = text,
    term = c(names(fit$alpha), names(fit$beta), "sd", "logLik"),
    estimate = sprintf("%.10g", c(fit$alpha, fit$beta, sqrt(fit$ST[[1]][1]^2), fit$logLik)),
    std_error = c(sprintf("%.10g", se[seq_len(n)]), "", "")
  ))
}
write.csv(found, "clmm.csv", row.names = FALSE, quote = FALSE)
print(found)
print(max(abs(fit$gradient)))
