# ebfed for R, by reticulate, with the three frames of broom:
#   source("ebfed.R"); fit <- ebfed(Reaction ~ Days + (Days | Subject), sleep); tidy(fit)
# RETICULATE_PYTHON chooses the Python. Arguments are those of ebfed's from_formula; integers need an
# L. Everything else of the fit is in fit$py: fit$py$ranks("Days", top = 3L).
ebfed <- function(formula, data, ...) {
  text <- if (is.character(formula)) formula else paste(deparse(formula, 500L), collapse = " ")
  data[] <- lapply(data, function(x) if (is.factor(x)) as.character(x) else x)
  fit <- reticulate::import("ebfed")$from_formula(text, data, ...)
  structure(list(py = fit, call = match.call()), class = "ebfed")
}

# Newer versions of pandas and NumPy than reticulate knows are not converted by itself.
as_r <- function(x) {
  if (!inherits(x, "python.builtin.object")) return(x)
  if (inherits(x, "pandas.core.frame.DataFrame") || inherits(x, "pandas.DataFrame"))
    return(data.frame(x$to_dict("list"), check.names = FALSE))
  unlist(x$tolist())
}

# Generics of broom, if it is not attached; its own find these methods too.
for (name in c("tidy", "glance", "augment", "fixef", "ranef"))
  if (!exists(name)) assign(name, eval(bquote(function(x, ...) UseMethod(.(name)))))

tidy.ebfed <- function(x, effects = NULL, conf.int = FALSE, conf.level = 0.95, ...)
  as_r(x$py$tidy(effects, conf_int = conf.int, conf_level = conf.level))
glance.ebfed <- function(x, ...) as_r(x$py$glance())
augment.ebfed <- function(x, data = NULL, ...) as_r(x$py$augment(data))
fixef.ebfed <- function(x, ...) as_r(x$py$fixef())
ranef.ebfed <- function(x, ...) as_r(x$py$ranef())
coef.ebfed <- function(object, ...) as_r(object$py$coef())
confint.ebfed <- function(object, parm, level = 0.95, ...) as_r(object$py$confint(level))
predict.ebfed <- function(object, newdata = NULL, type = "response", ...) {
  as_r(object$py$predict(newdata, type = type))
}
logLik.ebfed <- function(object, ...) {
  of <- glance.ebfed(object)
  structure(of$logLik, df = of$npar, nobs = of$nobs, class = "logLik")
}
print.ebfed <- function(x, ...) cat(paste0(x$py$summary(), "\n"))
summary.ebfed <- function(object, ...) print.ebfed(object)
