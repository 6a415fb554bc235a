# ebfed from R, by the functions of ebfed.R, which is beside this script.
#   Rscript vignettes/from_r.R
script <- sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE))
source(file.path(dirname(script), "ebfed.R"))

# Reaction times of 18 drivers on ten days without sleep: lme4's sleepstudy.
times <- "
308 249.56 258.7047 250.8006 321.4398 356.8519 414.6901 382.2038 290.1486 430.5853 466.3535
309 222.7339 205.2658 202.9778 204.707 207.7161 215.9618 213.6303 217.7272 224.2957 237.3142
310 199.0539 194.3322 234.32 232.8416 229.3074 220.4579 235.4208 255.7511 261.0125 247.5153
330 321.5426 300.4002 283.8565 285.133 285.7973 297.5855 280.2396 318.2613 305.3495 354.0487
331 287.6079 285 301.8206 320.1153 316.2773 293.3187 290.075 334.8177 293.7469 371.5811
332 234.8606 242.8118 272.9613 309.7688 317.4629 309.9976 454.1619 346.8311 330.3003 253.8644
333 283.8424 289.555 276.7693 299.8097 297.171 338.1665 332.0265 348.8399 333.36 362.0428
334 265.4731 276.2012 243.3647 254.6723 279.0244 284.1912 305.5248 331.5229 335.7469 377.299
335 241.6083 273.9472 254.4907 270.8021 251.4519 254.6362 245.4523 235.311 235.7541 237.2466
337 312.3666 313.8058 291.6112 346.1222 365.7324 391.8385 404.2601 416.6923 455.8643 458.9167
349 236.1032 230.3167 238.9256 254.922 250.7103 269.7744 281.5648 308.102 336.2806 351.6451
350 256.2968 243.4543 256.2046 255.5271 268.9165 329.7247 379.4445 362.9184 394.4872 389.0527
351 250.5265 300.0576 269.8939 280.5891 271.8274 304.6336 287.7466 266.5955 321.5418 347.5655
352 221.6771 298.1939 326.8785 346.8555 348.7402 352.8287 354.4266 360.4326 375.6406 388.5417
369 271.9235 268.4369 257.2424 277.6566 314.8222 317.2135 298.1353 348.1229 340.28 366.5131
370 225.264 234.5235 238.9008 240.473 267.5373 344.1937 281.1481 347.5855 365.163 372.2288
371 269.8804 272.4428 277.8989 281.7895 279.1705 284.512 259.2658 304.6306 350.7807 369.4692
372 269.4117 273.474 297.5968 310.6316 287.1726 329.6076 334.4818 343.2199 369.1417 364.1236
"
wide <- read.table(text = times)
sleep <- data.frame(
  Subject = rep(as.character(wide$V1), each = 10),
  Days = rep(0:9, nrow(wide)),
  Reaction = as.vector(t(wide[, -1]))
)

# A formula of R, and a data frame. Results are data frames with the names of broom.mixed.
fit <- ebfed(Reaction ~ Days + (Days | Subject), sleep)
print(fit)
print(tidy(fit, conf.int = TRUE))
print(glance(fit))
print(head(augment(fit)))
print(head(ranef(fit)))
stopifnot(
  identical(names(tidy(fit)), c("effect", "group", "term", "estimate", "std.error", "statistic")),
  nrow(glance(fit)) == 1,
  nrow(augment(fit)) == nrow(sleep),
  all.equal(augment(fit)$.fitted, as.numeric(predict(fit))),
  all.equal(augment(fit)$.fitted + augment(fit)$.resid, sleep$Reaction),
  all.equal(as.numeric(logLik(fit)), glance(fit)$logLik),
  length(predict(fit, head(sleep, 3))) == 3
)

# Methods without a function of R are those of Python.
print(head(as_r(fit$py$ranks("Days", top = 3L))))
alone <- ebfed(Reaction ~ Days + (1 | Subject), sleep)
eb <- reticulate::import("ebfed")
print(as_r(eb$compare(fit$py, alone$py)))

# Eight schools: vectors are arrays.
effects <- c(28, 8, -3, 7, -1, 1, 18, 12)
errors <- c(15, 10, 16, 11, 9, 11, 10, 18)
print(as_r(eb$posterior_from(effects, errors, prior = "normal")$to_frame()))

# Missing values are missing, and factors have their levels in their order: "lo" is the reference.
rows <- data.frame(
  ward = rep(c("a", "b", NA, "NA"), each = 6),
  visits = c(NA, 2:24),
  open = rep(c(TRUE, FALSE, NA, TRUE, FALSE, TRUE), 4),
  dose = factor(rep(c("lo", "hi"), 12), levels = c("lo", "hi")),
  score = sin(1:24)
)
whole <- subset(rows, !is.na(ward) & !is.na(visits) & !is.na(open))
model <- score ~ visits + open + dose + (1 | ward)
fit <- ebfed(model, rows, na_action = "drop")
print(fixef(fit))
stopifnot(
  identical(fixef(fit)$term, c("intercept", "visits", "open", "dose[T.hi]")),
  all.equal(fixef(fit), fixef(ebfed(model, whole))),
  identical(as.character(ranef(fit)$ward), c("NA", "a", "b")),
  inherits(try(ebfed(model, rows), silent = TRUE), "try-error"),
  all.equal(predict(fit, whole[1:3, ]), augment(fit)$.fitted[1:3])
)

if (requireNamespace("lme4", quietly = TRUE)) {
  peer <- lme4::lmer(Reaction ~ Days + (Days | Subject), sleep)
  spreads <- as.data.frame(lme4::VarCorr(peer))$sdcor[c(1, 2, 4)]
  expected <- c(lme4::fixef(peer), spreads, lme4::REMLcrit(peer))
  tidied <- tidy(fit)
  of <- function(term) tidied$estimate[tidied$term == term]
  found <- c(
    of("intercept"), of("Days"), of("sd__intercept"), of("sd__Days"), of("sd__Observation"),
    glance(fit)$REMLcrit
  )
  print(data.frame(
    of = c("intercept", "Days", "sd intercept", "sd Days", "sd residual", "REML criterion"),
    lme4 = unname(expected), ebfed = found
  ))
  # both optimisers stop near the optimum: four digits
  stopifnot(all.equal(unname(expected), found, tolerance = 1e-4))
  both <- cbind(as.matrix(lme4::ranef(peer)$Subject), as.matrix(ranef(fit)[, -1]))
  stopifnot(max(abs(both[, 1:2] - both[, 3:4])) < 1e-3 * max(abs(both)))
  cat("lme4 and ebfed agree.\n")
} else {
  cat("lme4 is not installed: nothing to compare with.\n")
}
