# Maximum likelihood of three populations under x_i ~ N(theta_i, s_i^2), by mixsqp and by optim.
# Called by npmle.py with the folder of data.csv (x, s) and grid.csv; prints npmle.csv.
#   npmle: weights of the atoms of the grid, mixsqp
#   scale_mixture: weights of N(0, scale^2), scale = 0 and min(s)/10 * sqrt(2)^j, mixsqp
#   point_normal: pi0 delta(0) + (1 - pi0) N(0, scale^2), BFGS on logit and log
#   normal: N(mean, scale^2), BFGS
# ebnm and ashr are not in Debian; mixsqp is the optimiser that they call.
# r-base-core and r-cran-mixsqp (Debian): R 4.2.2, mixsqp 0.3-48.
suppressPackageStartupMessages(library(mixsqp))
folder <- commandArgs(trailingOnly = TRUE)[1]
data <- as.matrix(read.csv(file.path(folder, "data.csv"), header = FALSE))
x <- data[, 1]
s <- data[, 2]
atoms <- scan(file.path(folder, "grid.csv"), quiet = TRUE)

rows <- list()
add <- function(prior, quantity, value)
  rows[[length(rows) + 1]] <<- sprintf("%s,%s,%.17g", prior, quantity, value)

by_mixsqp <- function(prior, make) {
  seconds <- system.time({
    density <- make()
    fit <- mixsqp(density, log = TRUE, control = list(verbose = FALSE))
  })[c("user.self", "sys.self")]
  weights <- fit$x / sum(fit$x)
  peak <- apply(density, 1, max)
  mixture <- as.vector(exp(density - peak) %*% weights)
  add(prior, "log_likelihood", sum(log(mixture) + peak))
  add(prior, "duality_gap", max(colSums(exp(density - peak) / mixture)) - length(x))
  add(prior, "cpu_seconds", sum(seconds))
  list(weights = weights, mixture = mixture * exp(peak))
}

normal_density <- function(mean, sd) dnorm(x, mean, sd, log = TRUE)

npmle <- by_mixsqp("npmle", function() outer(x, atoms, "-") |>
  (\(u) -0.5 * (u / s)^2 - log(s) - 0.5 * log(2 * pi))())
add("npmle", "mean", sum(npmle$weights * atoms))
add("npmle", "second_moment", sum(npmle$weights * atoms^2))

smallest <- min(s) / 10
largest <- 2 * sqrt(max(x^2 - s^2))
scales <- c(0, smallest * sqrt(2)^(0:ceiling(2 * log2(largest / smallest))))
mixture <- by_mixsqp("scale_mixture", function()
  sapply(scales, function(scale) normal_density(0, sqrt(s^2 + scale^2))))
add("scale_mixture", "second_moment", sum(mixture$weights * scales^2))

by_optim <- function(prior, minus, start) {
  control <- list(fnscale = length(x), reltol = 1e-15)
  seconds <- system.time(fit <- optim(start, minus, method = "BFGS", control = control))
  seconds <- seconds[c("user.self", "sys.self")]
  add(prior, "log_likelihood", -fit$value)
  add(prior, "cpu_seconds", sum(seconds))
  fit$par
}

point <- by_optim("point_normal", function(p) {
  null <- normal_density(0, s) + plogis(p[1], log.p = TRUE)
  slab <- normal_density(0, sqrt(s^2 + exp(2 * p[2]))) + plogis(-p[1], log.p = TRUE)
  top <- pmax(null, slab)
  -sum(top + log(exp(null - top) + exp(slab - top)))
}, c(0, 0))
add("point_normal", "pi0", plogis(point[1]))
add("point_normal", "scale", exp(point[2]))

normal <- by_optim("normal", function(p) -sum(normal_density(p[1], sqrt(s^2 + exp(2 * p[2])))), c(0, 0))
add("normal", "mean", normal[1])
add("normal", "variance", exp(2 * normal[2]))

cat("prior,quantity,value\n", paste0(unlist(rows), "\n"), sep = "")
