# Reads a fit that ebfed saved, by jsonlite alone, and computes its estimates:
#   Rscript vignettes/read_fit.R fit.json
# of GaussianEB, BernoulliEB and PoissonEB with normal, beta and gamma populations. In another script:
#   source("vignettes/read_fit.R"); fit <- read_fit("fit.json"); estimates(fit)

# A file is JSON with tags; see the page "Fits in files and in databases".
plain <- function(x) {
  if (!is.list(x)) return(x)
  tag <- if (length(x) == 1) names(x) else NULL
  if (identical(tag, "array")) return(as_array(x$array))
  if (identical(tag, "scalar")) return(number(x$scalar[[2]]))
  if (identical(tag, "number")) return(number(x$number))
  if (identical(tag, "tuple")) return(lapply(x$tuple, plain))
  if (identical(tag, "dict"))
    return(setNames(lapply(x$dict, function(p) plain(p[[2]])), sapply(x$dict, function(p) format(p[[1]]))))
  if (identical(x$object, "labels")) return(unlist(x$arguments$values))
  lapply(x, plain)
}

# One by one: unlist would write numbers beside text with fewer digits.
number <- function(x) if (is.character(x)) as.numeric(sub("Infinity", "Inf", x)) else x

as_array <- function(x) {
  kind <- substr(x[[1]], 2, 2)
  values <- if (kind == "U") unlist(x[[3]]) else as.numeric(unlist(lapply(x[[3]], number)))  # NULL if empty
  if (length(x[[2]]) < 2) return(values)
  aperm(array(values, rev(unlist(x[[2]]))), rev(seq_along(x[[2]])))  # row by row
}

read_fit <- function(path) {
  fit <- jsonlite::fromJSON(path, simplifyVector = FALSE)
  stopifnot(identical(fit$format, "ebfed.fit"), fit$version == 1)
  plain(fit)
}

# Estimates of the groups of the fit, by the formulas of vignettes/site/pages/methods.
estimates <- function(fit) {
  groups <- fit$groups$figures$arguments
  if (is.null(groups)) stop("the file has no groups")
  prior <- fit$population$prior
  size <- if (is.null(groups$weight)) groups$n else groups$weight
  total <- size * as.vector(groups$mean)
  m <- prior$mean_
  estimate <- switch(
    sub("^location\\.", "", fit$estimator),
    GaussianEB = {
      noise <- if (is.null(prior$noise_variance_)) unlist(fit$arguments$variances) else prior$noise_variance_
      (m * noise + prior$variance_ * total) / (noise + prior$variance_ * size)
    },
    BernoulliEB = {
      weight <- pmin(1 / prior$dispersion_, 1e14)
      (m * weight + total) / (weight + size)
    },
    PoissonEB = {
      shape <- pmin(1 / prior$dispersion_, 1e14)
      m * (shape + total) / (shape + m * size)
    },
    stop("no formula for ", fit$estimator)
  )
  data.frame(group = groups$ids, n = groups$n, estimate = estimate)
}

arguments <- commandArgs(trailingOnly = TRUE)
if (sys.nframe() == 0 && length(arguments) == 1) {
  fit <- read_fit(arguments)
  print(estimates(fit), digits = 15, row.names = FALSE)
}
