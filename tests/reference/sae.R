# Small areas by the model of Fay and Herriot: expenditure on milk, milk.csv.
#
# Writes sae.csv (estimates and mean squared errors of areas, by method) and sae_fixed.csv
# (coefficients and standard errors, by method).
# Run in this folder: Rscript sae.R
library(sae)

milk <- read.csv("milk.csv")
areas <- data.frame(area = milk$area)
fixed <- NULL
for (method in c("REML", "ML", "FH")) {
  found <- mseFH(direct ~ as.factor(major_area), std_error^2, method = method, data = milk)
  name <- tolower(method)
  areas[[paste0("eblup_", name)]] <- as.vector(found$est$eblup)
  areas[[paste0("mse_", name)]] <- found$mse
  if (method != "FH") {
    coefficients <- found$est$fit$estcoef
    fixed <- rbind(fixed, data.frame(
      method = name, term = c("intercept", paste0("major_area_", 2:4)),
      estimate = coefficients$beta, std_error = coefficients$std.error
    ))
  }
}
write.csv(areas, "sae.csv", row.names = FALSE)
write.csv(fixed, "sae_fixed.csv", row.names = FALSE)
