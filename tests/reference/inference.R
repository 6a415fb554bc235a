# Tests, intervals, margins and influence by lme4, lmerTest, pbkrtest and emmeans: see README.md.
# Run in this folder: Rscript inference.R
suppressMessages({
  library(lme4)
  library(lmerTest)
  library(pbkrtest)
  library(emmeans)
})

cake <- as.data.frame(lme4::cake)
cake <- data.frame(
  angle = cake$angle, recipe = as.character(cake$recipe), temperature = cake$temp,
  batch = paste0(cake$recipe, cake$replicate)
)
oats <- as.data.frame(nlme::Oats)
oats <- data.frame(
  yield = oats$yield, nitro = oats$nitro, variety = gsub(" ", "", as.character(oats$Variety)),
  block = as.character(oats$Block)
)
write.csv(cake, "cake.csv", row.names = FALSE, quote = FALSE)
write.csv(oats, "oats.csv", row.names = FALSE, quote = FALSE)
sleep <- read.csv("sleepstudy.csv")
# unbalanced: every fifth row, and the late days of some, are left out
gaps <- sleep[-seq(1, nrow(sleep), by = 5), ]
gaps <- gaps[!(gaps$Subject %in% c(308, 335, 371) & gaps$Days > 3), ]
fewer <- oats[-c(2, 3, 17, 18, 19, 20, 41, 60, 71), ]
radon <- read.csv("radon.csv")
chem97 <- merge(read.csv(gzfile("chem97.csv.gz")), read.csv("chem97_lea.csv"))
chem97$gcsecnt <- chem97$gcsescore - mean(chem97$gcsescore)
cake$temp <- factor(cake$temperature)

tight <- lmerControl(
  optimizer = "bobyqa", optCtrl = list(rhoend = 1e-10, maxfun = 1e5),
  check.conv.singular = "ignore", check.conv.grad = "ignore", check.conv.hess = "ignore"
)
mixed <- function(formula, data, REML = TRUE) {
  # the formula goes into the call, so that the fit can be updated
  eval(bquote(lmerTest::lmer(.(formula), data, REML = .(REML), control = tight)))
}
fits <- list(
  sleepstudy = mixed(Reaction ~ Days + (Days | Subject), sleep),
  sleepstudy_diag = mixed(Reaction ~ Days + (Days || Subject), sleep),
  sleepstudy_ml = mixed(Reaction ~ Days + (Days | Subject), sleep, FALSE),
  gaps = mixed(Reaction ~ Days + I(Days^2) + (Days | Subject), gaps),
  radon = mixed(log_radon ~ floor + log_uranium + (1 | county), radon),
  cake = mixed(angle ~ recipe * temp + (1 | batch), cake),
  oats = mixed(yield ~ nitro * variety + (1 | block / variety), oats),
  fewer = mixed(yield ~ nitro * variety + (1 | block / variety), fewer),
  chem97 = mixed(score ~ gcsecnt + (1 | lea / school), chem97)
)

rows <- function(case, ddf, table) data.frame(case = case, ddf = ddf, table, row.names = NULL)
coefficients <- terms <- NULL
for (case in names(fits)) {
  for (ddf in c("Satterthwaite", "Kenward-Roger")) {
    slow <- case %in% c("chem97", "radon") # matrices of all rows
    if (ddf == "Kenward-Roger" && (slow || !isREML(fits[[case]]))) next
    found <- coef(summary(fits[[case]], ddf = ddf))
    coefficients <- rbind(coefficients, rows(case, tolower(ddf), data.frame(
      term = rownames(found), estimate = found[, 1], std_error = found[, 2], df = found[, 3],
      p_value = found[, 5]
    )))
    found <- as.data.frame(anova(fits[[case]], type = 3, ddf = ddf))
    terms <- rbind(terms, rows(case, tolower(ddf), data.frame(
      term = rownames(found), num_df = found$NumDF, den_df = found$DenDF,
      statistic = found[["F value"]], p_value = found[["Pr(>F)"]]
    )))
  }
}
write.csv(coefficients, "inference_coefficients.csv", row.names = FALSE)
write.csv(terms, "inference_terms.csv", row.names = FALSE)

# Likelihood-ratio tests
alone <- mixed(Reaction ~ Days + (1 | Subject), sleep)
bent <- mixed(Reaction ~ Days + I(Days^2) + (Days | Subject), sleep)
pairs_of <- list(
  slopes = list(alone, fits$sleepstudy), curve = list(fits$sleepstudy, bent), both = list(alone, bent)
)
ratios <- NULL
for (case in names(pairs_of)) {
  found <- as.data.frame(do.call(anova, unname(pairs_of[[case]])))
  ratios <- rbind(ratios, data.frame(
    case = case, npar = found$npar, AIC = found$AIC, BIC = found$BIC, logLik = found$logLik,
    deviance = found$deviance, statistic = found$Chisq, df = found$Df, p_value = found[["Pr(>Chisq)"]]
  ))
}
write.csv(ratios, "inference_ratios.csv", row.names = FALSE)

# Profile intervals
profiles <- NULL
for (case in c("sleepstudy", "sleepstudy_diag", "radon", "oats")) {
  found <- suppressWarnings(confint(fits[[case]], method = "profile", oldNames = FALSE, quiet = TRUE))
  profiles <- rbind(profiles, data.frame(
    case = case, term = rownames(found), low = found[, 1], high = found[, 2], row.names = NULL
  ))
}
write.csv(profiles, "inference_profiles.csv", row.names = FALSE)

# Margins
emm_options(lmer.df = "kenward-roger")
margins <- NULL
add <- function(case, what, table) {
  table <- as.data.frame(table)
  numbers <- intersect(c("emmean", "estimate", "nitro.trend"), names(table))[1]
  labels <- table[, seq_len(match("SE", names(table)) - 2), drop = FALSE]
  margins <<- rbind(margins, data.frame(
    case = case, what = what, label = apply(labels, 1, function(x) paste(trimws(x), collapse = " ")),
    estimate = table[[numbers]], std_error = table$SE, df = table$df,
    p_value = if ("p.value" %in% names(table)) table$p.value else NA, row.names = NULL
  ))
}
add("cake", "recipe", emmeans(fits$cake, ~recipe))
add("cake", "recipe:temp", emmeans(fits$cake, ~ recipe * temp))
add("cake", "pairs", pairs(emmeans(fits$cake, ~recipe), adjust = "none"))
add("cake", "pairs_tukey", pairs(emmeans(fits$cake, ~recipe), adjust = "tukey"))
add("fewer", "variety", emmeans(fits$fewer, ~variety))
add("fewer", "slopes", emtrends(fits$fewer, ~variety, var = "nitro"))
add("fewer", "at", emmeans(fits$fewer, ~variety, at = list(nitro = 0.5)))
write.csv(margins, "inference_margins.csv", row.names = FALSE)

# Influence of single groups: lme4 refits without each
influences <- NULL
data_of <- list(sleepstudy = sleep, gaps = gaps)
for (case in names(data_of)) {
  rows_here <- data_of[[case]]
  fit <- lme4::lmer(Reaction ~ Days + (Days | Subject), rows_here, control = tight)
  found <- influence(fit, groups = "Subject")
  influences <- rbind(influences, data.frame(
    case = case, group = rownames(found[["fixed.effects[-Subject]"]]), cooks = cooks.distance(found)
  ))
}
write.csv(influences, "inference_influence.csv", row.names = FALSE)
