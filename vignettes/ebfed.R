# ebfed for R, by reticulate, with the three frames of broom:
#   source("ebfed.R"); fit <- ebfed(Reaction ~ Days + (Days | Subject), sleep); tidy(fit)
# RETICULATE_PYTHON chooses the Python. Arguments are those of ebfed's from_formula; integers need an
# L. Everything else of the fit is in fit$py: fit$py$ranks("Days", top = 3L).
ebfed <- function(formula, data, ...) {
  text <- if (is.character(formula)) formula else paste(deparse(formula, 500L), collapse = " ")
  given <- lapply(list(...), function(x) if (is.atomic(x) && length(x) > 1) as_column(x) else x)
  fit <- do.call(reticulate::import("ebfed")$from_formula, c(list(text, as_frame(data)), given))
  structure(list(py = fit, call = match.call()), class = "ebfed")
}

# A data frame of pandas. reticulate passes missing integers as -2147483648, missing truth values as
# TRUE and missing text as "NA"; here they are missing, and factors have their levels in their order.
as_frame <- function(data) {
  if (!is.data.frame(data)) return(data)
  columns <- reticulate::py_dict(as.list(names(data)), unname(lapply(data, as_column)))
  reticulate::import("pandas", convert = FALSE)$DataFrame(columns)
}

as_column <- function(x) {
  pandas <- reticulate::import("pandas", convert = FALSE)
  numpy <- reticulate::import("numpy", convert = FALSE)
  lacks <- is.na(x)
  values <- as.list(x)
  if (is.factor(x)) {
    codes <- as.list(ifelse(lacks, -1L, as.integer(x) - 1L))
    return(pandas$Categorical$from_codes(codes, as.list(levels(x)), ordered = is.ordered(x)))
  }
  if (inherits(x, c("Date", "POSIXt"))) {
    values <- as.list(format(x, "%Y-%m-%dT%H:%M:%OS6", tz = "UTC"))
    values[lacks] <- list(NULL)
    return(pandas$to_datetime(values))
  }
  if (is.object(x) || !is.atomic(x)) return(x)
  if (is.character(x)) {
    values[lacks] <- list(NULL)
    return(pandas$Series(values, dtype = "object"))
  }
  if (is.double(x)) return(numpy$array(values, dtype = "float64"))
  values[lacks] <- list(if (is.logical(x)) FALSE else 0L)
  whole <- numpy$array(values, dtype = if (is.logical(x)) "bool" else "int64")
  if (!any(lacks)) return(whole)
  of <- if (is.logical(x)) pandas$arrays$BooleanArray else pandas$arrays$IntegerArray
  of(whole, numpy$array(as.list(lacks), dtype = "bool"))
}

# Newer versions of pandas and NumPy than reticulate knows are not converted by itself. What is
# missing in Python is NA.
as_r <- function(x) {
  if (!inherits(x, "python.builtin.object")) return(x)
  if (inherits(x, "pandas.core.frame.DataFrame") || inherits(x, "pandas.DataFrame"))
    return(data.frame(lapply(x$to_dict("list"), known), check.names = FALSE))
  known(x$tolist())
}

known <- function(values) {
  if (is.list(values)) {
    none <- function(each) is.null(each) || inherits(each, "python.builtin.object")
    values[vapply(values, none, TRUE)] <- NA
  }
  unlist(values)
}

# Generics of broom, if it is not attached; its own find these methods too.
for (name in c("tidy", "glance", "augment", "fixef", "ranef"))
  if (!exists(name)) assign(name, eval(bquote(function(x, ...) UseMethod(.(name)))))

tidy.ebfed <- function(x, effects = NULL, conf.int = FALSE, conf.level = 0.95, ...)
  as_r(x$py$tidy(effects, conf_int = conf.int, conf_level = conf.level))
glance.ebfed <- function(x, ...) as_r(x$py$glance())
augment.ebfed <- function(x, data = NULL, ...) as_r(x$py$augment(as_frame(data)))
fixef.ebfed <- function(x, ...) as_r(x$py$fixef())
ranef.ebfed <- function(x, ...) as_r(x$py$ranef())
coef.ebfed <- function(object, ...) as_r(object$py$coef())
confint.ebfed <- function(object, parm, level = 0.95, ...) as_r(object$py$confint(level))
predict.ebfed <- function(object, newdata = NULL, type = "response", ...) {
  as_r(object$py$predict(as_frame(newdata), type = type))
}
logLik.ebfed <- function(object, ...) {
  of <- glance.ebfed(object)
  structure(of$logLik, df = of$npar, nobs = of$nobs, class = "logLik")
}
print.ebfed <- function(x, ...) cat(paste0(x$py$summary(), "\n"))
summary.ebfed <- function(object, ...) print.ebfed(object)
