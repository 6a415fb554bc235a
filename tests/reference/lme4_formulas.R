# Fit sleepstudy, radon, chem97 and cbpp, written by formulas.py, with lme4's formulas; write
# lme4_formulas_*.csv. Run as: Rscript lme4_formulas.R

library(lme4)
library(numDeriv)

args <- commandArgs(trailingOnly = FALSE)
setwd(dirname(sub("^--file=", "", grep("^--file=", args, value = TRUE))))

cases <- read.csv(strip.white = TRUE, sep = ";", text = "
case; data; formula; contrasts; method
sleepstudy; sleepstudy; Reaction ~ Days + (1 + Days | Subject); ; REML
sleepstudy_ml; sleepstudy; Reaction ~ Days + (1 + Days | Subject); ; ML
sleepstudy_independent; sleepstudy; Reaction ~ Days + (1 + Days || Subject); ; REML
sleepstudy_intercept; sleepstudy; Reaction ~ Days + (1 | Subject); ; REML
radon_null; radon; log_radon ~ 1 + (1 | county); ; REML
radon_intercept; radon; log_radon ~ floor + (1 | county); ; REML
radon_factor; radon; log_radon ~ factor(floor) + (1 | county); ; REML
radon_sum; radon; log_radon ~ factor(floor) + (1 | county); contr.sum; REML
radon_slope; radon; log_radon ~ floor + log_uranium + (1 + floor | county); ; REML
radon_independent; radon; log_radon ~ floor * log_uranium + (1 + floor || county); ; REML
chem97_intercept; chem97; score ~ gcsecnt + (1 | school); ; REML
chem97_slope; chem97; score ~ gcsecnt * gender + (1 + gcsecnt | school); ; REML
chem97_square; chem97; score ~ age + I(age^2) + gcsescore + (1 | school); ; REML
chem97_sum; chem97; score ~ age + I(age^2) + gcsescore + gender + (1 | school); contr.sum; REML
chem97_poly; chem97; score ~ poly(age, 2) + log(gcsescore + 1) + (1 | school); ; REML
cbpp; cbpp; cbind(incidence, size - incidence) ~ period + (1 | herd); ; Laplace
cbpp_quadrature; cbpp; cbind(incidence, size - incidence) ~ period + (1 | herd); ; quadrature
sleepstudy_slow; sleepstudy; I(Reaction > 300) ~ Days + (1 | Subject); ; Laplace
sleepstudy_slow_quadrature; sleepstudy; I(Reaction > 300) ~ Days + (1 | Subject); ; quadrature
")

read <- function(file) {
  table <- read.csv(file, stringsAsFactors = TRUE)
  for (name in intersect(names(table), c("Subject", "school", "herd", "period"))) {
    table[[name]] <- factor(table[[name]])
  }
  table
}

linear <- function(formula, data, reml, contrasts) {
  # lmer()'s theta, taken by Newton's steps from where its optimiser stops to the root of the slope
  # of the deviance; wide differences, as in lme4_slopes.R.
  control <- lmerControl(optimizer = "bobyqa", optCtrl = list(rhoend = 1e-10))
  parsed <- lFormula(formula, data, REML = reml, contrasts = contrasts, control = control)
  deviance <- do.call(mkLmerDevfun, c(parsed, list(control = control)))
  theta <- optimizeLmer(deviance, optimizer = "bobyqa", control = control$optCtrl)$par
  stopifnot(parsed$reTrms$lower < 0 | theta > 1e-3) # none of these is on the boundary
  triangle <- parsed$reTrms$Lambdat
  triangle@x <- theta[parsed$reTrms$Lind]
  entry <- match(seq_along(theta), parsed$reTrms$Lind)
  unit <- sqrt(colSums(triangle^2))[rep(seq_len(ncol(triangle)), diff(triangle@p))[entry]]
  wide <- list(eps = 0.1, r = 5)
  for (step in 1:8) {
    local <- function(move) deviance(theta + move * unit)
    zero <- numeric(length(theta))
    move <- solve(hessian(local, zero, method.args = wide), grad(local, zero, method.args = wide))
    theta <- theta - move * unit
  }
  stopifnot(abs(move) < 1e-8)
  as_given <- lmerControl(optimizer = NULL, calc.derivs = FALSE)
  lmer(formula, data, REML = reml, contrasts = contrasts, start = theta, control = as_given)
}

fit <- function(case, data) {
  formula <- as.formula(case$formula)
  if (case$method %in% c("REML", "ML")) {
    contrasts <- NULL
    if (case$contrasts != "") {
      name <- if (case$data == "radon") "factor(floor)" else "gender"
      contrasts <- setNames(list(case$contrasts), name)
    }
    return(linear(formula, data, case$method == "REML", contrasts))
  }
  control <- glmerControl("bobyqa", optCtrl = list(rhoend = 1e-9), tolPwrss = 1e-13)
  glmer(formula, data, binomial, control, nAGQ = if (case$method == "Laplace") 1 else 25)
}

# The criterion, fixed effects, conditional modes and their sd without lme4: by group, with dense
# matrices, at the given variances.
by_group <- function(model, reml) {
  X <- getME(model, "X")
  y <- getME(model, "y")
  Z <- do.call(cbind, getME(model, "mmList"))
  noise <- sigma(model)^2
  between <- matrix(0, ncol(Z), ncol(Z))
  blocks <- VarCorr(model)
  at <- 0
  for (block in blocks) {
    own <- at + seq_len(nrow(block))
    between[own, own] <- block
    at <- max(own)
  }
  group <- model@flist[[1]]
  rows <- split(seq_along(y), group)
  inverse <- lapply(rows, function(i) {
    z <- Z[i, , drop = FALSE]
    solve(z %*% between %*% t(z) + noise * diag(length(i)))
  })
  total <- function(f) Reduce(`+`, Map(f, rows, inverse))
  information <- total(function(i, v) crossprod(X[i, , drop = FALSE], v %*% X[i, , drop = FALSE]))
  moment <- total(function(i, v) crossprod(X[i, , drop = FALSE], v %*% y[i]))
  beta <- solve(information, moment)
  residual <- as.vector(y - X %*% beta)
  criterion <- total(function(i, v) {
    sum(residual[i] * (v %*% residual[i])) - as.numeric(determinant(v)$modulus)
  }) + (length(y) - reml * ncol(X)) * log(2 * pi)
  if (reml) criterion <- criterion + as.numeric(determinant(information)$modulus)
  random <- t(mapply(function(i, v) {
    z <- Z[i, , drop = FALSE]
    spread <- between - between %*% t(z) %*% v %*% z %*% between
    c(between %*% t(z) %*% v %*% residual[i], sqrt(diag(spread)))
  }, rows, inverse))
  list(criterion = criterion, beta = as.vector(beta), se = sqrt(diag(solve(information))),
       random = random)
}

agree <- function(case, model, random) {
  reml <- case$method == "REML"
  check <- by_group(model, reml)
  # as.data.frame(ranef()) goes term by term, each in the order of the groups
  modes <- cbind(matrix(random$condval, nrow(check$random)),
                 matrix(random$condsd, nrow(check$random)))
  se <- sqrt(diag(as.matrix(vcov(model))))
  difference <- c(criterion = as.numeric(-2 * logLik(model)) - check$criterion,
                  beta = max(abs(fixef(model) - check$beta) / se), se = max(abs(se / check$se - 1)),
                  modes = max(abs(modes - check$random)) / max(abs(modes)))
  cat(sprintf("%-24s lme4 to dense matrices:", case$case),
      sprintf("%s %.0e", names(difference), abs(difference)), "\n")
  stopifnot(abs(difference) < 1e-6)
}

digits <- function(x) ifelse(is.na(x), "", sprintf("%.15g", x))
tables <- list(fit = NULL, fixef = NULL, varcor = NULL, ranef = NULL, predict = NULL)
add <- function(name, case, rows) {
  numbers <- vapply(rows, is.numeric, TRUE) & !names(rows) %in% c("n", "n_groups", "df", "row")
  rows[numbers] <- lapply(rows[numbers], digits)
  tables[[name]] <<- rbind(tables[[name]], cbind(case = case$case, rows))
}

for (number in seq_len(nrow(cases))) {
  case <- cases[number, ]
  data <- read(paste0(case$data, if (case$data == "chem97") ".csv.gz" else ".csv"))
  model <- fit(case, data)
  random <- as.data.frame(ranef(model, condVar = TRUE))
  if (isLMM(model)) agree(case, model, random)

  add("fit", case, data.frame(
    case[c("data", "formula", "contrasts", "method")], n = nobs(model), n_groups = ngrps(model),
    df = attr(logLik(model), "df"), criterion = -2 * as.numeric(logLik(model)),
    loglik = as.numeric(logLik(model)), aic = AIC(model), bic = BIC(model), sigma = sigma(model)
  ))
  add("fixef", case, data.frame(
    term = names(fixef(model)), estimate = fixef(model),
    std_error = sqrt(diag(as.matrix(vcov(model)))), row.names = NULL
  ))
  spread <- as.data.frame(VarCorr(model))
  spread$grp <- sub("[.]1$", "", spread$grp) # the second block of "||"
  add("varcor", case, spread)
  # every 25th school: all 2,410 would be most of this folder
  if (case$data == "chem97") random <- random[as.integer(as.character(random$grp)) %% 25 == 1, ]
  add("ranef", case, random[c("grpvar", "grp", "term", "condval", "condsd")])
  if (isLMM(model)) {
    new <- read(paste0(case$data, "_new.csv"))
    add("predict", case, data.frame(
      row = seq_len(nrow(new)),
      prediction = predict(model, new, allow.new.levels = TRUE),
      population = predict(model, new, re.form = NA)
    ))
  }
}
for (name in names(tables)) {
  with_comma <- which(vapply(tables[[name]], function(x) any(grepl(",", x)), TRUE))
  write.csv(tables[[name]], sprintf("lme4_formulas_%s.csv", name), row.names = FALSE, na = "",
            quote = as.vector(with_comma))
}
