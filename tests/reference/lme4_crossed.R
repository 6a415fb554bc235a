# Crossed random effects by lme4: Penicillin, Pastes, and InstEval, data sets of the package lme4.
#
#   Rscript lme4_crossed.R        (in this folder; writes lme4_crossed*.csv and the two small tables)
#
# Optimisers stop early by default; here they run on until the criterion is flat.

suppressMessages(library(lme4))
control <- lmerControl(optimizer = "bobyqa", optCtrl = list(rhoend = 1e-9, maxfun = 1e5),
                       calc.derivs = FALSE)
Penicillin$weight <- rep(1:3, length.out = nrow(Penicillin))
Pastes <- Pastes[c("strength", "batch", "sample")]
write.csv(Penicillin, "penicillin.csv", row.names = FALSE, quote = FALSE)
write.csv(Pastes, "pastes.csv", row.names = FALSE, quote = FALSE)
InstEval$service <- as.numeric(as.character(InstEval$service))
InstEval$studage <- as.numeric(as.character(InstEval$studage))

models <- list(
  penicillin = list(diameter ~ 1 + (1 | plate) + (1 | sample), Penicillin),
  penicillin_weights = list(diameter ~ 1 + (1 | plate) + (1 | sample), Penicillin),
  pastes = list(strength ~ 1 + (1 | batch) + (1 | sample), Pastes),
  insteval = list(y ~ 1 + (1 | s) + (1 | d), InstEval),
  insteval_dept = list(y ~ service + studage + (1 | s) + (1 | d) + (1 | dept:service), InstEval)
)
fits <- NULL
effects <- NULL
for (name in names(models)) for (method in c("reml", "ml")) {
  data <- models[[name]][[2]]
  weighed <- grepl("weights", name)
  data$w <- if (weighed) data$weight else 1
  fit <- lmer(models[[name]][[1]], data, weights = w, REML = method == "reml", control = control)
  row <- function(kind, term, value, error = NA)
    data.frame(model = name, method = method, kind = kind, term = term, value = value,
               std.error = error)
  vc <- as.data.frame(VarCorr(fit))
  fits <- rbind(fits,
    row("criterion", "", if (method == "reml") REMLcrit(fit) else -2 * as.numeric(logLik(fit))),
    row("fixed", names(fixef(fit)), fixef(fit), sqrt(diag(as.matrix(vcov(fit))))),
    row("sd", vc$grp, vc$sdcor))
  found <- as.data.frame(ranef(fit, condVar = TRUE))
  if (nrow(found) > 200)  # every fifteenth level of the large table
    found <- found[seq(1, nrow(found), by = 15), ]
  effects <- rbind(effects, data.frame(model = name, method = method, factor = found$grpvar,
                                       level = found$grp, value = found$condval, sd = found$condsd))
}
write.csv(format(fits, digits = 12), "lme4_crossed.csv", row.names = FALSE, quote = FALSE)
write.csv(format(effects, digits = 9, trim = TRUE), "lme4_crossed_effects.csv", row.names = FALSE, quote = FALSE)
