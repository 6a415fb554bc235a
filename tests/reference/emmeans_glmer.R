# Marginal means, pairs and slopes of emmeans for lmer and glmer, by z.
suppressMessages({library(lme4); library(emmeans)})
cbpp <- read.csv("cbpp.csv")
cbpp$period <- factor(cbpp$period)
counts <- glmer(cbind(incidence, size - incidence) ~ period + (1 | herd), cbpp, binomial, nAGQ = 25)
sleep <- lmer(Reaction ~ Days + (Days | Subject), read.csv("sleepstudy.csv"))
means <- emmeans(counts, "period")
kept <- function(what, table, label, estimate) data.frame(
  what = what, label = as.character(table[[label]]), estimate = table[[estimate]], std_error = table$SE
)
lines <- as.data.frame(emtrends(sleep, ~1, var = "Days", lmer.df = "asymptotic"))
ends <- as.data.frame(emmeans(sleep, "Days", at = list(Days = c(0, 9)), lmer.df = "asymptotic"))
lines$label <- "Days"
found <- rbind(
  kept("cbpp means", as.data.frame(means), "period", "emmean"),
  kept("cbpp responses", as.data.frame(regrid(means)), "period", "prob"),
  kept("cbpp pairs", as.data.frame(pairs(means)), "contrast", "estimate"),
  kept("sleepstudy slope", lines, "label", "Days.trend"),
  kept("sleepstudy means", ends, "Days", "emmean")
)
write.csv(found, "emmeans_glmer.csv", row.names = FALSE)
