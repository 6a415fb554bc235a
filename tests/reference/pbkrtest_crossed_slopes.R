# Kenward and Roger's degrees of freedom and standard errors with slopes of crossed factors, by
# pbkrtest: rows are those of lme4_crossed_slopes.R, and of cake.csv.
#
#   Rscript pbkrtest_crossed_slopes.R   (in this folder; writes pbkrtest_crossed_slopes.csv)

suppressMessages(library(lmerTest))
control <- lmerControl(optimizer = "bobyqa", optCtrl = list(rhoend = 1e-9, maxfun = 1e5),
                       calc.derivs = FALSE)
penicillin <- read.csv("penicillin.csv")
penicillin$t <- (seq_len(nrow(penicillin)) * 37) %% 24 / 6
penicillin$diameter <- penicillin$diameter + penicillin$t *
  c(A = -1, B = 0.5, C = 1, D = 0, E = -0.5, F = 0.8)[penicillin$sample]
constant <- read.csv("penicillin.csv")
plate <- as.integer(factor(constant$plate))
constant$u <- (plate * 7) %% 5 / 2
constant$diameter <- constant$diameter + constant$u * ((plate * 11) %% 7 - 3) / 3
cake <- read.csv("cake.csv")
cake$replicate <- substring(cake$batch, 2)
cake$warm <- (cake$temperature - 200) / 10
cake$angle <- cake$angle + cake$warm * ((as.integer(factor(cake$batch)) * 11) %% 7 - 3) / 2
models <- list(
  penicillin = list(diameter ~ t + (1 | plate) + (1 + t | sample), penicillin),
  penicillin_diagonal = list(diameter ~ t + (1 | plate) + (1 + t || sample), penicillin),
  constant = list(diameter ~ u + (1 + u | plate) + (1 | sample), constant),
  constant_diagonal = list(diameter ~ u + (1 + u || plate) + (1 | sample), constant),
  cake = list(angle ~ warm + recipe + (1 | replicate) + (1 + warm | batch), cake),
  cake_slope = list(angle ~ warm + recipe + (0 + warm | batch) + (1 | replicate), cake)
)
found <- NULL
for (name in names(models)) {
  fit <- lmer(models[[name]][[1]], models[[name]][[2]], control = control)
  table <- coef(summary(fit, ddf = "Kenward-Roger"))
  found <- rbind(found, data.frame(model = name, term = rownames(table), df = table[, "df"],
                                   std.error = table[, "Std. Error"]))
  several <- anova(fit, ddf = "Kenward-Roger")
  found <- rbind(found, data.frame(model = name, term = paste0("anova ", rownames(several)),
                                   df = several[, "DenDF"], std.error = NA))
  print(VarCorr(fit))
}
print(found)
write.csv(format(found, digits = 9, trim = TRUE), "pbkrtest_crossed_slopes.csv", row.names = FALSE,
          quote = FALSE)
