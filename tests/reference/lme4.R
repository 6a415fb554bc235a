# Fit each one_way_*.csv beside this file with lme4; write lme4.csv and lme4_ranef.csv.
# Run as: Rscript lme4.R

library(lme4)
library(numDeriv)

args <- commandArgs(trailingOnly = FALSE)
setwd(dirname(sub("^--file=", "", grep("^--file=", args, value = TRUE))))

fit <- function(table, reml) {
  # lmer() taken apart, to polish theta = sqrt(group variance / residual variance) in between.
  control <- lmerControl(optimizer = "bobyqa", optCtrl = list(rhoend = 1e-10))
  parsed <- lFormula(value ~ 1 + (1 | group), data = table, REML = reml, control = control)
  deviance <- do.call(mkLmerDevfun, c(parsed, list(control = control)))
  optimum <- optimizeLmer(deviance, optimizer = "bobyqa", control = control$optCtrl)
  # A minimiser of the deviance stops at about the root of the machine precision; a root of its
  # slope can be had to many more digits.  The steps are wide, 0.3 theta and down, as the
  # deviance is smooth and its rounding is what limits a slope from small steps.
  slope <- function(theta) {
    grad(deviance, theta, method.args = list(d = 0.3, r = 5))
  }
  theta <- uniroot(slope, optimum$par * c(0.8, 1.25), tol = 1e-15)$root
  optimum$par <- theta
  optimum$fval <- deviance(theta) # also leaves the fit's state at theta
  mkMerMod(environment(deviance), optimum, parsed$reTrms, fr = parsed$fr)
}

# The same estimates without lme4: the variance ratio at which the slope of the profiled log
# likelihood is zero, written out for one mean and one grouping.
profile_fit <- function(table, reml) {
  n <- as.vector(table(table$group))
  means <- as.vector(tapply(table$value, table$group, mean))
  within <- sum((table$value - ave(table$value, table$group))^2)
  df <- sum(n) - reml
  parts <- function(ratio) {
    weight <- n / (1 + n * ratio)
    mu <- sum(weight * means) / sum(weight)
    quadratic <- within + sum(weight * (means - mu)^2)
    list(weight = weight, mu = mu, variance = quadratic / df)
  }
  slope <- function(ratio) {
    p <- parts(ratio)
    value <- -sum(p$weight) + sum(p$weight^2 * (means - p$mu)^2) / p$variance
    if (reml) value <- value + sum(p$weight^2) / sum(p$weight)
    value
  }
  ratio <- uniroot(slope, c(1e-8, 1e3), tol = 1e-16, maxiter = 10000)$root
  p <- parts(ratio)
  loglik <- -(df * (log(2 * pi * p$variance) + 1) + sum(log1p(n * ratio))) / 2
  if (reml) loglik <- loglik - log(sum(p$weight)) / 2
  c(mu = p$mu, mu_se = sqrt(p$variance / sum(p$weight)), group_variance = ratio * p$variance,
    residual_variance = p$variance, loglik = loglik)
}

digits <- function(x) sprintf("%.17g", x)

fits <- NULL
effects <- NULL
for (name in c("grunfeld", "unbalanced", "near_boundary")) {
  table <- read.csv(sprintf("one_way_%s.csv", name))
  table$group <- factor(table$group)
  for (method in c("REML", "ML")) {
    model <- fit(table, method == "REML")
    numbers <- c(mu = unname(fixef(model)), mu_se = sqrt(vcov(model)[1, 1]),
                 group_variance = VarCorr(model)$group[1, 1],
                 residual_variance = sigma(model)^2, loglik = as.numeric(logLik(model)))
    profiled <- profile_fit(table, method == "REML")
    difference <- abs(numbers / profiled - 1)
    cat(name, method, "lme4 to the profile, relative:", sprintf("%.1e", difference), "\n")
    stopifnot(difference < 1e-8)
    fits <- rbind(fits, data.frame(dataset = name, method = method, t(sapply(numbers, digits))))

    random <- ranef(model, condVar = TRUE)$group
    effects <- rbind(effects, data.frame(
      dataset = name, method = method, group = rownames(random),
      blup = digits(unname(fixef(model)) + random[["(Intercept)"]]),
      sd = digits(sqrt(as.vector(attr(random, "postVar"))))
    ))
  }
}
write.csv(fits, "lme4.csv", row.names = FALSE, quote = FALSE)
write.csv(effects, "lme4_ranef.csv", row.names = FALSE, quote = FALSE)
