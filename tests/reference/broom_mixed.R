# Write broom_mixed_columns.csv: the columns that broom.mixed gives of lme4's models.
# Run as: Rscript broom_mixed.R

library(lme4)
library(broom.mixed)

args <- commandArgs(trailingOnly = FALSE)
setwd(dirname(sub("^--file=", "", grep("^--file=", args, value = TRUE))))

models <- list(
  REML = lmer(Reaction ~ Days + (1 + Days | Subject), sleepstudy),
  ML = lmer(Reaction ~ Days + (1 + Days | Subject), sleepstudy, REML = FALSE),
  glmer = glmer(cbind(incidence, size - incidence) ~ period + (1 | herd), cbpp, binomial)
)
columns <- NULL
add <- function(model, name, effects, table) {
  columns <<- rbind(columns, data.frame(model = model, "function" = name, effects = effects,
                                        column = names(table), check.names = FALSE))
}
for (model in names(models)) {
  for (effects in c("fixed", "ran_pars", "ran_vals", "ran_coefs")) {
    # of coefficients by group it has no intervals: it says so, and leaves the two columns empty
    table <- suppressWarnings(tidy(models[[model]], effects = effects, conf.int = TRUE))
    add(model, "tidy", effects, table)
  }
  add(model, "glance", "", glance(models[[model]]))
  # of the hat matrix of glmer() it says that it may not make sense
  add(model, "augment", "", suppressWarnings(augment(models[[model]])))
}
write.csv(columns, "broom_mixed_columns.csv", row.names = FALSE, quote = 4)
