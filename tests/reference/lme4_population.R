# Fit each population_*.csv beside this file with lme4, value ~ w1 + w2 + (1 | group); write
# lme4_population.csv and lme4_population_ranef.csv. Run as: Rscript lme4_population.R

library(lme4)
library(numDeriv)

args <- commandArgs(trailingOnly = FALSE)
setwd(dirname(sub("^--file=", "", grep("^--file=", args, value = TRUE))))

fit <- function(table, reml) {
  # As in lme4.R: on from where the optimiser stops to the root of the slope of the deviance.
  control <- lmerControl(optimizer = "bobyqa", optCtrl = list(rhoend = 1e-10))
  parsed <- lFormula(value ~ w1 + w2 + (1 | group), data = table, REML = reml, control = control)
  deviance <- do.call(mkLmerDevfun, c(parsed, list(control = control)))
  optimum <- optimizeLmer(deviance, optimizer = "bobyqa", control = control$optCtrl)
  slope <- function(theta) {
    grad(deviance, theta, method.args = list(d = 0.3, r = 5))
  }
  theta <- uniroot(slope, optimum$par * c(0.8, 1.25), tol = 1e-15)$root
  optimum$par <- theta
  optimum$fval <- deviance(theta) # also leaves the fit's state at theta
  mkMerMod(environment(deviance), optimum, parsed$reTrms, fr = parsed$fr)
}

digits <- function(x) sprintf("%.17g", x)

fits <- NULL
effects <- NULL
for (name in c("grunfeld", "unbalanced")) {
  table <- read.csv(sprintf("population_%s.csv", name))
  table$group <- factor(table$group)
  first <- table[!duplicated(table$group), ]
  for (method in c("REML", "ML")) {
    model <- fit(table, method == "REML")
    error <- sqrt(diag(as.matrix(vcov(model))))
    numbers <- c(b0 = fixef(model)[[1]], b1 = fixef(model)[[2]], b2 = fixef(model)[[3]],
                 se0 = error[[1]], se1 = error[[2]], se2 = error[[3]],
                 group_variance = VarCorr(model)$group[1, 1],
                 residual_variance = sigma(model)^2, loglik = as.numeric(logLik(model)))
    fits <- rbind(fits, data.frame(dataset = name, method = method, t(sapply(numbers, digits))))

    random <- ranef(model, condVar = TRUE)$group
    own <- first[match(rownames(random), first$group), ]
    mean <- numbers["b0"] + numbers["b1"] * own$w1 + numbers["b2"] * own$w2
    effects <- rbind(effects, data.frame(
      dataset = name, method = method, group = rownames(random),
      blup = digits(mean + random[["(Intercept)"]]),
      sd = digits(sqrt(as.vector(attr(random, "postVar"))))
    ))
  }
}
write.csv(fits, "lme4_population.csv", row.names = FALSE, quote = FALSE)
write.csv(effects, "lme4_population_ranef.csv", row.names = FALSE, quote = FALSE)
