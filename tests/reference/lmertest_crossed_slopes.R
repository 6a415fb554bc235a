# Satterthwaite's degrees of freedom of fits with slopes of crossed factors, by lmerTest: rows are
# those of lme4_crossed_slopes.R.
#
#   Rscript lmertest_crossed_slopes.R   (in this folder; writes lmertest_crossed_slopes.csv)

suppressMessages(library(lmerTest))
control <- lmerControl(optimizer = "bobyqa", optCtrl = list(rhoend = 1e-9, maxfun = 1e5),
                       calc.derivs = FALSE)
inst <- read.csv("insteval_sixth.csv.gz")
penicillin <- read.csv("penicillin.csv")
penicillin$t <- (seq_len(nrow(penicillin)) * 37) %% 24 / 6
penicillin$diameter <- penicillin$diameter + penicillin$t *
  c(A = -1, B = 0.5, C = 1, D = 0, E = -0.5, F = 0.8)[penicillin$sample]
constant <- read.csv("penicillin.csv")
plate <- as.integer(factor(constant$plate))
constant$u <- (plate * 7) %% 5 / 2
constant$diameter <- constant$diameter + constant$u * ((plate * 11) %% 7 - 3) / 3
models <- list(
  penicillin = list(diameter ~ t + (1 | plate) + (1 + t | sample), penicillin),
  penicillin_weights = list(diameter ~ t + (1 | plate) + (1 + t | sample), penicillin),
  constant = list(diameter ~ u + (1 + u | plate) + (1 | sample), constant),
  constant_diagonal = list(diameter ~ u + (1 + u || plate) + (1 | sample), constant),
  inst = list(y ~ service + (1 + service | d) + (1 | s), inst),
  inst_slope = list(y ~ service + (0 + service | d) + (1 | s), inst)
)
found <- NULL
for (name in names(models)) for (method in c("reml", "ml")) {
  if (startsWith(name, "inst") && method == "ml") next
  data <- models[[name]][[2]]
  data$w <- if (grepl("weights", name)) data$weight else 1
  fit <- lmer(models[[name]][[1]], data, weights = w, REML = method == "reml", control = control)
  table <- coef(summary(fit))
  found <- rbind(found, data.frame(model = name, method = method,
                                   term = sub("(Intercept)", "intercept", rownames(table), fixed = TRUE),
                                   df = table[, "df"]))
}
write.csv(format(found, digits = 9, trim = TRUE), "lmertest_crossed_slopes.csv", row.names = FALSE,
          quote = FALSE)
