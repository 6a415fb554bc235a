# Rates of malignant lymph nodes of 844 patients by deconvolveR, as in section 4 of Narasimhan and
# Efron (2020), J. Statist. Software 94(11).
#   surg.csv: nodes removed and nodes found malignant (Efron and Hastie 2016, section 6.3)
#   deconvolve.csv: population on the grid theta, its standard errors, columns of Q
#   deconvolve_fit.csv: coefficients, and standard error of each
# Needs deconvolveR 1.2-1.
library(deconvolveR)
data(surg)
write.csv(data.frame(removed = surg$n, malignant = surg$s), "surg.csv", row.names = FALSE)
fit <- deconv(tau = seq(0.01, 0.99, by = 0.01), X = surg, family = "Binomial", c0 = 1,
              pDegree = 5)
Q <- fit$Q
colnames(Q) <- paste0("q", 1:5)
table <- data.frame(fit$stats[, c("theta", "g", "SE.g")], Q)
names(table)[3] <- "se"
write.csv(format(table, digits = 12), "deconvolve.csv", row.names = FALSE, quote = FALSE)
table <- data.frame(coefficient = fit$mle, se = sqrt(diag(fit$cov)))
write.csv(format(table, digits = 12), "deconvolve_fit.csv", row.names = FALSE, quote = FALSE)
