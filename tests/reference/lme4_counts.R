# Fit counts and cases of disease by glmer(); write lme4_counts.csv.
# Run as: Rscript lme4_counts.R. It writes the data grouseticks.csv, contraception.csv and
# mmmec_nations.csv too, from lme4 and mlmRev; epil is that of MASS.

library(lme4)
library(numDeriv)

args <- commandArgs(trailingOnly = FALSE)
setwd(dirname(sub("^--file=", "", grep("^--file=", args, value = TRUE))))

data(epil, package = "MASS")
epil$lbase <- log(epil$base / 4) - mean(log(epil$base / 4))
epil$lage <- log(epil$age) - mean(log(epil$age))
data(grouseticks, package = "lme4")
data(Contraception, Mmmec, package = "mlmRev")
grouseticks <- grouseticks[c("TICKS", "YEAR", "cHEIGHT", "BROOD", "LOCATION")]
grouseticks$cHEIGHT <- round(grouseticks$cHEIGHT, 6)
Contraception <- Contraception[c("district", "use", "livch", "age", "urban")]
Contraception$age <- round(Contraception$age, 6)
Mmmec <- Mmmec[c("nation", "region", "deaths", "expected", "uvb")]
write.csv(grouseticks, "grouseticks.csv", row.names = FALSE, quote = FALSE)
write.csv(Contraception, "contraception.csv", row.names = FALSE, quote = FALSE)
write.csv(Mmmec, "mmmec_nations.csv", row.names = FALSE, quote = FALSE)
sets <- list(epil = epil, cbpp = cbpp, grouseticks = grouseticks, contraception = Contraception,
             mmmec = Mmmec)

cases <- read.csv(strip.white = TRUE, sep = ";", text = "
case; data; family; nodes; formula
epil; epil; poisson; 25; y ~ lbase * trt + lage + V4 + (1 | subject)
cbpp; cbpp; binomial; 25; cbind(incidence, size - incidence) ~ period + (1 | herd)
grouseticks; grouseticks; poisson; 25; TICKS ~ YEAR + cHEIGHT + (1 | BROOD)
contraception; contraception; binomial; 25; use ~ age + I(age^2) + urban + livch + (1 | district)
epil_laplace; epil; poisson; 1; y ~ lbase * trt + lage + V4 + (1 + V4 | subject)
contraception_laplace; contraception; binomial; 1; use ~ age + urban + (1 + urban | district)
mmmec_levels; mmmec; poisson; 1; deaths ~ uvb + offset(log(expected)) + (1 | nation / region)
grouseticks_levels; grouseticks; poisson; 1; TICKS ~ YEAR + cHEIGHT + (1 | LOCATION / BROOD)
")

# From where glmer()'s optimiser stops, by Newton's steps to the root of the slope of its deviance.
# Its PIRLS must stop far later than by default: the deviance is else a function with steps.
polished <- function(case, data) {
  control <- glmerControl("bobyqa", optCtrl = list(rhoend = 1e-9), tolPwrss = 1e-13)
  given <- list(as.formula(case$formula), data, case$family, control, nAGQ = case$nodes)
  model <- do.call(glmer, given)
  deviance <- do.call(glmer, c(given, devFunOnly = TRUE))
  theta <- getME(model, "theta")
  place <- c(theta, fixef(model))
  unit <- c(rep(0.2, length(theta)), sqrt(diag(as.matrix(vcov(model)))))
  wide <- list(eps = 0.1, r = 5)
  local <- function(move) deviance(place + move * unit)
  for (step in 1:4) {
    zero <- numeric(length(place))
    bend <- hessian(local, zero, method.args = wide)
    move <- solve(bend, grad(local, zero, method.args = wide))
    place <- place - move * unit
  }
  cat(case$case, "last step", format(max(abs(move)), digits = 2), "\n")
  root <- vapply(seq_along(model@cnms), function(k) length(model@cnms[[k]]), 1L)
  triangles <- split(place[seq_along(theta)], rep(seq_along(root), root * (root + 1) / 2))
  names(triangles) <- names(model@cnms)
  error <- sqrt(diag(solve(bend / 2)))[-seq_along(theta)] * unit[-seq_along(theta)]
  rows <- data.frame(case = case$case, group = "", term = names(fixef(model)),
                     estimate = place[-seq_along(theta)], std_error = error)
  for (name in names(triangles)) {
    size <- length(model@cnms[[name]])
    triangle <- matrix(0, size, size)
    triangle[lower.tri(triangle, diag = TRUE)] <- triangles[[name]]
    spread <- triangle %*% t(triangle)
    sd <- sqrt(diag(spread))
    rows <- rbind(rows, data.frame(case = case$case, group = name, term = model@cnms[[name]],
                                   estimate = sd, std_error = NA))
    if (size == 2) {
      rows <- rbind(rows, data.frame(case = case$case, group = name, term = "correlation",
                                     estimate = spread[1, 2] / prod(sd), std_error = NA))
    }
  }
  rbind(rows, data.frame(case = case$case, group = "", term = "logLik", std_error = NA,
                         estimate = -deviance(place) / 2))
}

found <- lapply(seq_len(nrow(cases)), function(k) polished(cases[k, ], sets[[cases$data[k]]]))
found <- do.call(rbind, found)
for (name in c("estimate", "std_error")) {
  found[[name]] <- ifelse(is.na(found[[name]]), "", sprintf("%.10g", found[[name]]))
}
write.csv(found, "lme4_counts.csv", row.names = FALSE, quote = FALSE)
