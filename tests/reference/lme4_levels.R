# Variances of authorities, schools within them and pupils of Chem97 (mlmRev), by lme4.
# Run as: Rscript lme4_levels.R. It prints 1.166202, .014766, 5.154201 and the REML criterion
# 141696.9881, which are in tests/formula/test_fit_lme4.py.
library(lme4)
rows <- merge(read.csv("chem97.csv.gz"), read.csv("chem97_lea.csv"))
fit <- lmer(score ~ gcsecnt + (1 | lea / school), rows)
print(as.data.frame(VarCorr(fit))[, c("grp", "vcov")], digits = 7)
print(REMLcrit(fit), digits = 10)
