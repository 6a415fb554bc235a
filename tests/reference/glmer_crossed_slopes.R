# Crossed slopes of counts by glmer (Laplace, nAGQ = 1), and their data: Arabidopsis of lme4. Its
# figures stand in tests/regression/test_crossed_slopes.py.
#
#   Rscript glmer_crossed_slopes.R        (in this folder; writes arabidopsis.csv.gz, prints the fit)

suppressMessages(library(lme4))
control <- glmerControl(optimizer = "bobyqa", optCtrl = list(rhobeg = 1e-3, rhoend = 1e-9,
                        maxfun = 1e5), tolPwrss = 1e-12)
rows <- data.frame(fruits = Arabidopsis$total.fruits, nutrient = as.integer(Arabidopsis$nutrient > 4),
                   amd = Arabidopsis$amd, gen = Arabidopsis$gen, popu = Arabidopsis$popu)
write.csv(rows, gzfile("arabidopsis.csv.gz"), row.names = FALSE, quote = FALSE)
fit <- glmer(fruits ~ nutrient + amd + (1 + nutrient | gen) + (1 | popu), rows, poisson,
             control = control)
print(logLik(fit), digits = 12)
print(fixef(fit), digits = 9)
print(VarCorr(fit), digits = 9)
