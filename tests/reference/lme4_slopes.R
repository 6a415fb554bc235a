# Fit each slopes_*.csv beside this file with lme4; write lme4_slopes.csv and lme4_slopes_coef.csv.
# Run as: Rscript lme4_slopes.R

library(lme4)
library(numDeriv)

args <- commandArgs(trailingOnly = FALSE)
setwd(dirname(sub("^--file=", "", grep("^--file=", args, value = TRUE))))

# theta fills the lower triangle L of covariance = residual variance * L L': by columns in "full",
# the diagonal alone in "diag", and one number for all of the diagonal, which lme4 has no formula
# for, in "spherical".
spread <- function(theta, covariance) if (covariance == "spherical") rep(theta, 2) else theta
triangle <- function(theta, covariance) {
  if (covariance == "full") rbind(c(theta[1], 0), theta[2:3]) else diag(spread(theta, covariance))
}

fit <- function(table, covariance, reml) {
  # lmer() taken apart, to polish theta in between.
  control <- lmerControl(check.scaleX = "ignore") # Grunfeld's units are as they are
  fixed <- if ("z" %in% names(table)) "y ~ x + z" else "y ~ x"
  bar <- if (covariance == "full") "(1 + x | group)" else "(1 + x || group)"
  parsed <- lFormula(as.formula(paste(fixed, "+", bar)), data = table, REML = reml,
                     control = control)
  full_deviance <- do.call(mkLmerDevfun, c(parsed, list(control = control)))
  deviance <- function(theta) full_deviance(spread(theta, covariance))

  # In units in which the optimum is not far from one, whatever the units of x; from several
  # starts, as some of these criteria have more than one minimum.
  unit <- c(1, sd(table$y) / sd(table$x) / sd(resid(lm(as.formula(fixed), table))))
  unit <- switch(covariance, diag = unit, spherical = unit[2], full = unit[c(1, 2, 2)])
  lower <- switch(covariance, diag = c(0, 0), spherical = 0, full = c(0, -Inf, 0))
  starts <- expand.grid(rep(list(c(0.1, 1)), length(unit)))
  if (covariance == "full") starts <- rbind(starts, transform(starts, Var2 = -Var2))
  best <- NULL
  for (row in seq_len(nrow(starts))) {
    found <- nlminb(unlist(starts[row, ]), function(s) deviance(s * unit), lower = lower,
                    control = list(rel.tol = 1e-14, x.tol = 1e-12, iter.max = 1000,
                                   eval.max = 5000))
    if (is.null(best) || found$objective < best$objective) best <- found
  }

  # A minimiser of the deviance stops at about the root of the machine precision; a root of its
  # slope, found by Newton's steps, can be had to many more digits.  The differences are wide, as
  # the deviance is smooth and its rounding is what limits a slope from narrow ones.  A theta on
  # the boundary stays at zero: there the deviance has to rise.
  theta <- best$par * unit
  on_boundary <- lower == 0 & best$par < 1e-3
  theta[on_boundary] <- 0
  free <- !on_boundary
  at <- function(free_theta) deviance(replace(theta, free, free_theta))
  scale <- theta
  if (covariance == "full") scale[2:3] <- sqrt(sum(theta[2:3]^2))
  scale <- scale[free]
  wide <- list(eps = 0.1, r = 5)
  for (step in 1:10) {
    local <- function(s) at(theta[free] + s * scale)
    zero <- numeric(sum(free))
    move <- solve(hessian(local, zero, method.args = wide), grad(local, zero, method.args = wide))
    theta[free] <- theta[free] - move * scale
  }
  stopifnot(abs(move) < 1e-8)
  for (i in which(on_boundary)) {
    stopifnot(deviance(replace(theta, i, 0.01 * unit[i])) > deviance(theta))
  }

  optimum <- list(par = spread(theta, covariance), fval = deviance(theta), conv = 0, feval = 0)
  model <- mkMerMod(environment(full_deviance), optimum, parsed$reTrms, fr = parsed$fr)
  # sigma^2 L L' by hand: VarCorr() splits the independent terms.
  between <- sigma(model)^2 * tcrossprod(triangle(theta, covariance))
  list(model = model, between = between, last = max(abs(move)), fval = optimum$fval,
       boundary = any(on_boundary))
}

# The same without lme4: dense matrices at the given variances.
dense <- function(table, between, noise, reml) {
  group <- table$group
  fixed <- cbind(1, as.matrix(table[setdiff(names(table), c("group", "y"))]))
  random <- cbind(1, table$x)
  V <- (random %*% between %*% t(random)) * outer(group, group, "==") + noise * diag(nrow(table))
  inverse <- solve(V)
  information <- t(fixed) %*% inverse %*% fixed
  beta <- solve(information, t(fixed) %*% inverse %*% table$y)
  residual <- table$y - fixed %*% beta
  criterion <- determinant(V)$modulus + t(residual) %*% inverse %*% residual +
    (length(residual) - reml * ncol(fixed)) * log(2 * pi)
  if (reml) criterion <- criterion + determinant(information)$modulus
  effects <- sapply(levels(group), function(g) {
    between %*% t(random[group == g, , drop = FALSE]) %*% (inverse %*% residual)[group == g]
  })
  list(criterion = as.numeric(criterion), beta = beta, se = sqrt(diag(solve(information))),
       coef = t(effects + beta[1:2]))
}

digits <- function(x) ifelse(is.na(x), "", sprintf("%.15g", x))

fits <- NULL
coefs <- NULL
for (name in c("grunfeld", "grunfeld_log", "unbalanced", "boundary")) {
  table <- read.csv(sprintf("slopes_%s.csv", name))
  table$group <- factor(table$group)
  for (covariance in c("diag", "spherical", "full")) for (method in c("REML", "ML")) {
    reml <- method == "REML"
    fitted <- fit(table, covariance, reml)
    model <- fitted$model
    between <- fitted$between
    criterion <- if (reml) REMLcrit(model) else deviance(model)
    se <- sqrt(diag(as.matrix(vcov(model))))
    by_group <- as.matrix(coef(model)$group[c("(Intercept)", "x")])

    check <- dense(table, between, sigma(model)^2, reml)
    difference <- c(criterion - check$criterion, fixef(model) / check$beta - 1, se / check$se - 1,
                    max(abs(by_group / check$coef - 1)))
    cat(sprintf("%s %s %s%s: last step %.1e; lme4 to dense matrices %.1e\n", name, covariance,
                method, if (fitted$boundary) " (boundary)" else "", fitted$last,
                max(abs(difference))))
    stopifnot(abs(difference) < 1e-7)

    numbers <- c(
      criterion = criterion, loglik = as.numeric(logLik(model)),
      intercept = unname(fixef(model)[1]), x = unname(fixef(model)["x"]),
      z = unname(fixef(model)["z"]), intercept_se = unname(se[1]), x_se = unname(se[2]),
      z_se = unname(se[3]), intercept_variance = between[1, 1], x_variance = between[2, 2],
      covariance_of_both = between[1, 2], residual_variance = sigma(model)^2
    )
    case <- data.frame(dataset = name, covariance = covariance, method = method)
    fits <- rbind(fits, cbind(case, t(sapply(numbers, digits))))
    coefs <- rbind(coefs, cbind(case, group = rownames(by_group),
                                intercept = digits(by_group[, 1]), x = digits(by_group[, 2])))
  }
}
write.csv(fits, "lme4_slopes.csv", row.names = FALSE, quote = FALSE)
write.csv(coefs, "lme4_slopes_coef.csv", row.names = FALSE, quote = FALSE)
