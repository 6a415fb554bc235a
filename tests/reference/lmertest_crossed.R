# Satterthwaite's degrees of freedom of fits with crossed random effects, by lmerTest.
#
#   Rscript lmertest_crossed.R        (in this folder; writes lmertest_crossed.csv)

suppressMessages(library(lmerTest))
control <- lmerControl(optimizer = "bobyqa", optCtrl = list(rhoend = 1e-9, maxfun = 1e5),
                       calc.derivs = FALSE)
Penicillin$weight <- rep(1:3, length.out = nrow(Penicillin))
InstEval$service <- as.numeric(as.character(InstEval$service))
InstEval$studage <- as.numeric(as.character(InstEval$studage))
models <- list(
  penicillin = list(diameter ~ 1 + (1 | plate) + (1 | sample), Penicillin),
  penicillin_weights = list(diameter ~ 1 + (1 | plate) + (1 | sample), Penicillin),
  pastes = list(strength ~ 1 + (1 | batch) + (1 | sample), Pastes),
  insteval_dept = list(y ~ service + studage + (1 | s) + (1 | d) + (1 | dept:service), InstEval)
)
found <- NULL
for (name in names(models)) for (method in c("reml", "ml")) {
  if (name == "insteval_dept" && method == "ml") next
  data <- models[[name]][[2]]
  data$w <- if (grepl("weights", name)) data$weight else 1
  fit <- lmer(models[[name]][[1]], data, weights = w, REML = method == "reml", control = control)
  table <- coef(summary(fit))
  found <- rbind(found, data.frame(model = name, method = method, term = rownames(table),
                                   df = table[, "df"]))
  print(found)
}
write.csv(format(found, digits = 9, trim = TRUE), "lmertest_crossed.csv", row.names = FALSE,
          quote = FALSE)
