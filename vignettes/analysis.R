# Reaction times, cakes, oats, cattle and seizures: an analysis as R's users write it.
suppressMessages({library(lme4); library(lmerTest); library(emmeans); library(broom.mixed)})
best <- lmerControl(optimizer = "bobyqa", optCtrl = list(rhoend = 1e-10))
# Reaction times on ten days without sleep
sleep <- read.csv("sleepstudy.csv")
nrow(sleep)
tapply(sleep$Reaction, sleep$Subject, mean)
m <- lmer(Reaction ~ Days + (Days | Subject), sleep, control = best)
fixef(m)
sqrt(diag(as.matrix(vcov(m))))
as.data.frame(VarCorr(m))$sdcor
ranef(m)$Subject
coef(m)$Subject
fitted(m)
resid(m)
predict(m, data.frame(Days = c(0, 9)), re.form = NA)
predict(m, data.frame(Days = c(10, 11), Subject = 308))
tidy(m, effects = "fixed")[c("estimate", "std.error", "statistic")]
glance(m)[c("nobs", "sigma", "logLik", "AIC", "BIC", "REMLcrit")]
augment(m)[c(".fitted", ".resid", ".fixed")]
coef(summary(m))[, c("df", "t value", "Pr(>|t|)")]
coef(summary(m, ddf = "Kenward-Roger"))[, c("df", "t value", "Pr(>|t|)")]
confint(m, parm = "beta_", method = "Wald")
confint(m, quiet = TRUE)[c(5, 6, 1, 3, 2, 4), ]
m0 <- lmer(Reaction ~ Days + (1 | Subject), sleep, control = best)
m1 <- lmer(Reaction ~ Days + I(Days^2) + (Days | Subject), sleep, control = best)
suppressMessages(anova(m0, m))[2, c("AIC", "BIC", "Chisq", "Df", "Pr(>Chisq)")]
suppressMessages(anova(m, m1))[2, c("AIC", "BIC", "Chisq", "Df", "Pr(>Chisq)")]
w <- lmer(Reaction ~ Days + (1 | Subject), sleep, weights = sleep$Days + 1, control = best)
fixef(w)
d <- lmer(Reaction ~ Days + (Days || Subject), sleep, REML = FALSE, control = best)
as.data.frame(VarCorr(d))$sdcor
logLik(d)
# Angles at which cakes break, by recipe and temperature
cake <- transform(read.csv("cake.csv"), temp = as.character(temperature))
k <- lmer(angle ~ recipe * temp + (1 | batch), cake, control = best)
anova(k, ddf = "Kenward-Roger")[, c("NumDF", "DenDF", "F value", "Pr(>F)")]
e <- emmeans(k, ~recipe, lmer.df = "kenward-roger")
as.data.frame(e)[c("emmean", "SE", "df", "lower.CL", "upper.CL")]
as.data.frame(pairs(e))[c("estimate", "SE", "df", "p.value")]
as.data.frame(pairs(e, adjust = "holm"))[c("estimate", "SE", "df", "p.value")]
as.data.frame(contrast(e, list(A = c(1, -0.5, -0.5))))[c("estimate", "SE", "df", "p.value")]
as.data.frame(emmeans(k, ~temp, lmer.df = "satterthwaite"))[c("emmean", "SE", "df")]
# Yields of oats: varieties on plots of blocks
oats <- read.csv("oats.csv")
o <- lmer(yield ~ nitro * variety + (1 | block / variety), oats, control = best)
fixef(o)
sort(as.data.frame(VarCorr(o))$sdcor)
anova(o)[, c("NumDF", "DenDF", "F value", "Pr(>F)")]
as.data.frame(emtrends(o, ~variety, var = "nitro", lmer.df = "satterthwaite"))[c("nitro.trend", "SE", "df")]
as.data.frame(emmeans(o, ~variety, at = list(nitro = 0.5), lmer.df = "satterthwaite"))[c("emmean", "SE", "df")]
# Sick cattle: successes of trials
cattle <- transform(read.csv("cbpp.csv"), period = as.character(period))
g <- glmer(cbind(incidence, size - incidence) ~ period + (1 | herd), cattle, binomial, nAGQ = 25)
fixef(g)
as.data.frame(VarCorr(g))$sdcor
tidy(g, effects = "fixed")$std.error
as.data.frame(emmeans(g, ~period, type = "response"))[c("prob", "SE")]
# Seizures: counts
epil <- transform(read.csv("epil.csv"), lbase = log(base) - mean(log(base)), lage = log(age) - mean(log(age)))
p <- glmer(y ~ lbase * trt + lage + V4 + (1 | subject), epil, poisson, nAGQ = 25)
fixef(p)
as.data.frame(VarCorr(p))$sdcor
