# A random-effects meta-analysis of the trials of bcg.csv: log risk ratios, REML.
#
# Writes metafor.csv, the figures as metafor prints them.
# Run in this folder: Rscript metafor.R
library(metafor)

bcg <- read.csv("bcg.csv")
fit <- rma(
  ai = cases, n1i = vaccinated, ci = control_cases, n2i = controls,
  data = bcg, measure = "RR", method = "REML"
)
new <- predict(fit)
figures <- c(
  tau2 = sprintf("%.7f", fit$tau2),
  estimate = sprintf("%.4f", fit$beta), std_error = sprintf("%.4f", fit$se),
  lower = sprintf("%.4f", fit$ci.lb), upper = sprintf("%.4f", fit$ci.ub),
  new_lower = sprintf("%.4f", new$pi.lb), new_upper = sprintf("%.4f", new$pi.ub),
  q = sprintf("%.4f", fit$QE), i2 = sprintf("%.2f", fit$I2), h2 = sprintf("%.2f", fit$H2)
)
write.csv(
  data.frame(name = names(figures), figure = figures), "metafor.csv",
  row.names = FALSE, quote = FALSE
)
