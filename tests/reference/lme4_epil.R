# Figures of lme4 for the counts of seizures of MASS::epil, by quadrature with 25 nodes.
library(lme4)
data(epil, package = "MASS")
epil$lbase <- log(epil$base / 4) - mean(log(epil$base / 4))
epil$lage <- log(epil$age) - mean(log(epil$age))
fit <- glmer(y ~ lbase * trt + lage + V4 + (1 | subject), epil, poisson, nAGQ = 25)
found <- c(fixef(fit), sd = attr(VarCorr(fit)$subject, "stddev"))
write.csv(data.frame(term = names(found), estimate = round(found, 6)), "lme4_epil.csv",
          row.names = FALSE)
