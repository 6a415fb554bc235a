# Kenward and Roger's degrees of freedom and standard errors with crossed factors, by pbkrtest.
#
#   Rscript pbkrtest_crossed.R        (in this folder; writes pbkrtest_crossed.csv)

suppressMessages(library(lmerTest))
control <- lmerControl(optimizer = "bobyqa", optCtrl = list(rhoend = 1e-9, maxfun = 1e5),
                       calc.derivs = FALSE)
ticks <- read.csv("grouseticks.csv")
ticks$height <- ticks$cHEIGHT / 100
ticks$level <- log(ticks$TICKS + 1)
cake <- read.csv("cake.csv")
cake$replicate <- substring(cake$batch, 2)
models <- list(
  penicillin = list(diameter ~ 1 + (1 | plate) + (1 | sample), read.csv("penicillin.csv")),
  pastes = list(strength ~ 1 + (1 | batch) + (1 | sample), read.csv("pastes.csv")),
  cake = list(angle ~ temperature + recipe + (1 | replicate) + (1 | batch), cake),
  ticks = list(level ~ factor(YEAR) + height + (1 | BROOD) + (1 | LOCATION), ticks)
)
found <- NULL
for (name in names(models)) {
  fit <- lmer(models[[name]][[1]], models[[name]][[2]], control = control)
  table <- coef(summary(fit, ddf = "Kenward-Roger"))
  found <- rbind(found, data.frame(model = name, term = rownames(table), df = table[, "df"],
                                   std.error = table[, "Std. Error"]))
  several <- anova(fit, ddf = "Kenward-Roger")
  if (nrow(several) > 0)
    found <- rbind(found, data.frame(model = name, term = paste0("anova ", rownames(several)),
                                     df = several[, "DenDF"], std.error = NA))
}
print(found)
write.csv(format(found, digits = 9, trim = TRUE), "pbkrtest_crossed.csv", row.names = FALSE,
          quote = FALSE)
