# Fit models with a noise of its own for each level of a factor with nlme (varIdent) and glmmTMB
# (dispformula); write dispersion.csv, and the data of nlme as orthodont.csv and oxide.csv.
# Run as: Rscript dispersion.R

library(nlme)
library(glmmTMB)

args <- commandArgs(trailingOnly = FALSE)
setwd(dirname(sub("^--file=", "", grep("^--file=", args, value = TRUE))))

children <- as.data.frame(Orthodont)
children <- data.frame(distance = children$distance, age = children$age,
                       subject = as.character(children$Subject), sex = as.character(children$Sex))
children$w <- children$age / 8
children$iw <- 1 / children$w
children$male <- as.numeric(children$sex == "Male")
write.csv(children[c("distance", "age", "subject", "sex", "w")], "orthodont.csv",
          row.names = FALSE, quote = FALSE)
wafers <- with(as.data.frame(Oxide), data.frame(
  source = paste0("s", Source), lot = as.character(Lot), wafer = as.character(Wafer),
  thickness = Thickness))
write.csv(wafers, "oxide.csv", row.names = FALSE, quote = FALSE)
chem <- read.csv("chem97.csv.gz")
chem$school <- factor(chem$school)
chem$female <- as.numeric(chem$gender == "F")

tight <- lmeControl(msTol = 1e-14, tolerance = 1e-12, msMaxIter = 500, maxIter = 500,
                    returnObject = TRUE)
rows <- NULL
add <- function(model, package, method, beta, se, sds, loglik) {
  values <- c(beta, se, sds, loglik)
  names(values) <- c(paste0("beta", seq_along(beta)), paste0("se", seq_along(se)),
                     names(sds), "loglik")
  rows <<- rbind(rows, data.frame(model, package, method, figure = names(values),
                                  value = format(unname(values), digits = 12, trim = TRUE)))
}

with_nlme <- function(model, fixed, random, weights, by, data, method) {
  fit <- do.call(lme, list(fixed, data = data, random = random, weights = weights,
                           method = method, control = tight))
  part <- if (inherits(fit$modelStruct$varStruct, "varComb")) fit$modelStruct$varStruct[[1]]
          else fit$modelStruct$varStruct
  ratios <- coef(part, unconstrained = FALSE, allCoef = TRUE)
  noise <- fit$sigma * ratios
  names(noise) <- paste0("noise.", names(ratios))
  spreads <- unlist(lapply(as.matrix(fit$modelStruct$reStruct), function(G)
    fit$sigma * sqrt(diag(G))))
  names(spreads) <- paste0("spread", seq_along(spreads))  # from the outermost level
  se <- sqrt(diag(fit$varFix))
  add(model, "nlme", method, fixef(fit), se, c(noise, spreads), as.numeric(logLik(fit)))
}

with_glmmtmb <- function(model, formula, by, data, method) {
  fit <- glmmTMB(formula, dispformula = as.formula(paste("~ 0 +", by)), data = data,
                 REML = method == "REML",
                 control = glmmTMBControl(optCtrl = list(rel.tol = 1e-14, iter.max = 1000,
                                                         eval.max = 1000)))
  logs <- fixef(fit)$disp
  noise <- exp(logs / 2)  # of glmmTMB 1.1.5, the logarithm of the variance
  names(noise) <- paste0("noise.", sub(by, "", names(logs)))
  spreads <- unlist(lapply(VarCorr(fit)$cond, function(G) sqrt(diag(G))))
  names(spreads) <- paste0("spread", seq_along(spreads))
  add(model, "glmmTMB", method, fixef(fit)$cond, sqrt(diag(vcov(fit)$cond)), c(noise, spreads),
      as.numeric(logLik(fit)))
}

for (method in c("REML", "ML")) {
  with_nlme("orthodont", distance ~ age * male, ~ 1 | subject, varIdent(form = ~ 1 | sex), "sex",
            children, method)
  with_glmmtmb("orthodont", distance ~ age * male + (1 | subject), "sex", children, method)
  with_nlme("orthodont_slopes", distance ~ age, ~ 1 + age | subject, varIdent(form = ~ 1 | sex),
            "sex", children, method)
  with_nlme("orthodont_weights", distance ~ age * male, ~ 1 | subject,
            varComb(varIdent(form = ~ 1 | sex), varFixed(~ iw)), "sex", children, method)
  with_nlme("oxide", thickness ~ 1, ~ 1 | lot / wafer, varIdent(form = ~ 1 | source), "source",
            wafers, method)
  with_glmmtmb("chem97", score ~ gcsecnt + female + (1 | school), "gender", chem, method)
  with_nlme("chem97", score ~ gcsecnt + female, ~ 1 | school, varIdent(form = ~ 1 | gender),
            "gender", chem, method)
}
write.csv(rows, "dispersion.csv", row.names = FALSE, quote = FALSE)
