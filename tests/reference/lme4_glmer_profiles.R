# Profile intervals of lme4 for generalized models, by quadrature with 25 nodes.
suppressMessages(library(lme4))
cbpp <- read.csv("cbpp.csv")
cbpp$period <- factor(cbpp$period)
epil <- read.csv("epil.csv")
epil$lbase <- log(epil$base / 4) - mean(log(epil$base / 4))
epil$lage <- log(epil$age) - mean(log(epil$age))
epil$trt <- factor(epil$trt, levels = c("placebo", "progabide"))
fits <- list(
  cbpp = glmer(cbind(incidence, size - incidence) ~ period + (1 | herd), cbpp, binomial, nAGQ = 25),
  epil = glmer(y ~ lbase * trt + lage + V4 + (1 | subject), epil, poisson, nAGQ = 25)
)
found <- NULL
for (case in names(fits)) {
  ends <- confint(fits[[case]], method = "profile", oldNames = FALSE, quiet = TRUE)
  found <- rbind(found, data.frame(
    case = case, term = rownames(ends), low = ends[, 1], high = ends[, 2], row.names = NULL
  ))
}
write.csv(found, "lme4_glmer_profiles.csv", row.names = FALSE)
