# Negative binomial regressions of deaths by melanoma, with expected deaths as exposures.
#
# Writes glm_nb.csv: the log of the mean (intercept, slope), the shape, the log-likelihood, and the
# first posterior rate of a gamma population with that mean and shape.
# Run in this folder: Rscript glm_nb.R
library(MASS)

mmmec <- read.csv("mmmec.csv")
control <- glm.control(epsilon = 1e-14, maxit = 200)
rows <- list()
for (formula in c("deaths ~ 1 + offset(log(expected))", "deaths ~ uvb + offset(log(expected))")) {
  fit <- glm.nb(as.formula(formula), mmmec, control = control)
  mean <- exp(predict(fit) - log(mmmec$expected))[1]
  rate <- (fit$theta + mmmec$deaths[1]) / (fit$theta / mean + mmmec$expected[1])
  slope <- if (length(coef(fit)) > 1) coef(fit)[2] else NA
  rows[[formula]] <- data.frame(
    formula = formula, intercept = coef(fit)[1], slope = slope, shape = fit$theta,
    loglik = as.numeric(logLik(fit)), first = rate, row.names = NULL
  )
}
options(digits = 15)
write.csv(do.call(rbind, rows), "glm_nb.csv", row.names = FALSE, quote = FALSE)
