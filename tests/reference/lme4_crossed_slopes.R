# Slopes of crossed factors by lme4: every sixth student of InstEval, and Penicillin with a column.
#
#   Rscript lme4_crossed_slopes.R     (in this folder, after glmer_crossed.R; writes its two tables)
#
# Optimisers stop early by default; here they run on until the criterion is flat.

suppressMessages(library(lme4))
control <- lmerControl(optimizer = "bobyqa", optCtrl = list(rhoend = 1e-9, maxfun = 1e5),
                       calc.derivs = FALSE)
inst <- read.csv("insteval_sixth.csv.gz")
penicillin <- read.csv("penicillin.csv")
penicillin$t <- (seq_len(nrow(penicillin)) * 37) %% 24 / 6  # a column to have slopes in
penicillin$diameter <- penicillin$diameter + penicillin$t *
  c(A = -1, B = 0.5, C = 1, D = 0, E = -0.5, F = 0.8)[penicillin$sample]
constant <- read.csv("penicillin.csv")  # a column that is constant within every plate
plate <- as.integer(factor(constant$plate))
constant$u <- (plate * 7) %% 5 / 2
constant$diameter <- constant$diameter + constant$u * ((plate * 11) %% 7 - 3) / 3
models <- list(
  inst = list(y ~ service + (1 + service | d) + (1 | s), inst),
  inst_both = list(y ~ service + (1 + service | d) + (1 + service | s), inst),
  inst_diagonal = list(y ~ service + (1 + service || d) + (1 | s), inst),
  inst_slope = list(y ~ service + (0 + service | d) + (1 | s), inst),
  penicillin = list(diameter ~ t + (1 | plate) + (1 + t | sample), penicillin),
  penicillin_weights = list(diameter ~ t + (1 | plate) + (1 + t | sample), penicillin),
  constant = list(diameter ~ u + (1 + u | plate) + (1 | sample), constant),
  constant_diagonal = list(diameter ~ u + (1 + u || plate) + (1 | sample), constant)
)
fits <- NULL
effects <- NULL
for (name in names(models)) for (method in c("reml", "ml")) {
  if (method == "ml" && startsWith(name, "inst_")) next
  data <- models[[name]][[2]]
  data$w <- if (grepl("weights", name)) data$weight else 1
  fit <- lmer(models[[name]][[1]], data, weights = w, REML = method == "reml", control = control)
  row <- function(kind, group, term, value, error = NA)
    data.frame(model = name, method = method, kind = kind, group = group, term = term,
               value = value, std.error = error)
  vc <- as.data.frame(VarCorr(fit))
  vc$grp <- sub("\\.\\d+$", "", vc$grp)  # of terms that are not correlated
  label <- ifelse(is.na(vc$var2), paste0("sd__", vc$var1), paste0("cor__", vc$var1, ".", vc$var2))
  label[vc$grp == "Residual"] <- "sd__Observation"
  fits <- rbind(fits,
    row("criterion", "", "", if (method == "reml") REMLcrit(fit) else -2 * as.numeric(logLik(fit))),
    row("fixed", "", names(fixef(fit)), fixef(fit), sqrt(diag(as.matrix(vcov(fit))))),
    row("spread", vc$grp, label, vc$sdcor))
  found <- as.data.frame(ranef(fit, condVar = TRUE))
  if (nrow(found) > 200)  # every eleventh effect of the large table
    found <- found[seq(1, nrow(found), by = 11), ]
  effects <- rbind(effects, data.frame(model = name, method = method, factor = found$grpvar,
                                       term = found$term, level = found$grp,
                                       value = found$condval, sd = found$condsd))
}
for (table in c("fits", "effects")) {
  made <- get(table)
  for (each in c("group", "term")) if (each %in% names(made))
    made[[each]] <- gsub("(Intercept)", "intercept", made[[each]], fixed = TRUE)
  file <- if (table == "fits") "lme4_crossed_slopes.csv" else "lme4_crossed_slopes_effects.csv"
  write.csv(format(made, digits = 12, trim = TRUE), file, row.names = FALSE, quote = FALSE)
}
