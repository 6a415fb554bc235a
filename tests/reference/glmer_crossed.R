# Crossed random intercepts of binomial and Poisson rows by glmer (Laplace, nAGQ = 1), and their
# data: VerbAgg, grouseticks and every sixth student of InstEval, data sets of the package lme4.
#
#   Rscript glmer_crossed.R        (in this folder; writes glmer_crossed*.csv, verbagg.csv, ...)
#
# Optimisers stop early by default; here they run on until the criterion is flat.

suppressMessages(library(lme4))
control <- glmerControl(optimizer = "bobyqa", optCtrl = list(rhobeg = 1e-3, rhoend = 1e-9,
                        maxfun = 1e5), tolPwrss = 1e-12)
verbagg <- data.frame(r2 = as.integer(VerbAgg$r2 == "Y"), anger = (VerbAgg$Anger - 20) / 10,
                      Gender = VerbAgg$Gender, btype = VerbAgg$btype, situ = VerbAgg$situ,
                      id = VerbAgg$id, item = VerbAgg$item)
write.csv(verbagg, gzfile("verbagg.csv.gz"), row.names = FALSE, quote = FALSE)
ticks <- read.csv("grouseticks.csv")
ticks$INDEX <- seq_len(nrow(ticks))
ticks$height <- ticks$cHEIGHT / 100  # differences of glmer, for standard errors, are of 1e-4
students <- levels(InstEval$s)
students <- students[seq(1, length(students), by = 6)]
inst <- droplevels(InstEval[InstEval$s %in% students, ])
inst <- data.frame(s = inst$s, d = inst$d, dept = inst$dept,
                   service = as.integer(as.character(inst$service)), high = as.integer(inst$y >= 4), y = inst$y)
write.csv(inst, gzfile("insteval_sixth.csv.gz"), row.names = FALSE, quote = FALSE)
cells <- aggregate(list(won = inst$high, n = rep(1, nrow(inst))),
                   inst[c("dept", "service", "d")], sum)
write.csv(cells, "insteval_cells.csv", row.names = FALSE, quote = FALSE)
models <- list(
  verbagg = list(r2 ~ anger + Gender + btype + situ + (1 | id) + (1 | item), verbagg, binomial),
  grouseticks = list(TICKS ~ factor(YEAR) + height + (1 | BROOD) + (1 | LOCATION) + (1 | INDEX),
                     ticks, poisson),
  grouseticks_two = list(TICKS ~ factor(YEAR) + height + (1 | BROOD) + (1 | LOCATION), ticks, poisson),
  insteval_sixth = list(high ~ service + (1 | s) + (1 | d), inst, binomial),
  insteval_cells = list(cbind(won, n - won) ~ service + (1 | d) + (1 | dept), cells, binomial)
)
fits <- NULL
effects <- NULL
for (name in names(models)) {
  fit <- glmer(models[[name]][[1]], models[[name]][[2]], models[[name]][[3]])
  start <- list(theta = getME(fit, "theta"), fixef = fixef(fit))
  fit <- update(fit, start = start, control = control)
  for (again in 1:6) {  # from its own optimum, until nothing moves
    start <- list(theta = getME(fit, "theta"), fixef = fixef(fit))
    wide <- glmerControl(optimizer = "bobyqa", tolPwrss = 1e-12,
                         optCtrl = list(rhobeg = 10^(-again / 2), rhoend = 1e-10, maxfun = 1e5))
    fit <- update(fit, start = start, control = wide)
  }
  row <- function(kind, term, value, error = NA)
    data.frame(model = name, kind = kind, term = term, value = value, std.error = error)
  vc <- as.data.frame(VarCorr(fit))
  fits <- rbind(fits,
    row("criterion", "", -2 * as.numeric(logLik(fit))),
    row("fixed", names(fixef(fit)), fixef(fit), sqrt(diag(as.matrix(vcov(fit))))),
    row("sd", vc$grp, vc$sdcor))
  print(fits)
  found <- as.data.frame(ranef(fit, condVar = TRUE))
  if (nrow(found) > 200) found <- found[seq(1, nrow(found), by = 9), ]
  effects <- rbind(effects, data.frame(model = name, factor = found$grpvar, level = found$grp,
                                       value = found$condval, sd = found$condsd))
}
write.csv(format(fits, digits = 12), "glmer_crossed.csv", row.names = FALSE, quote = FALSE)
write.csv(format(effects, digits = 9, trim = TRUE), "glmer_crossed_effects.csv", row.names = FALSE, quote = FALSE)
