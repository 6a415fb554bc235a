# The credibility model of Buhlmann and Straub for the data of Hachemeister (1975), by actuar.
# Printed: collective mean 1683.713437, variance between states 89638.72623, within 139120025.9
# (tests/location/test_base_weights.py).
library(actuar)
rows <- read.csv("hachemeister.csv")
wide <- reshape(rows, direction = "wide", idvar = "state", timevar = "quarter")
fit <- cm(
  ~state, wide,
  ratios = grep("^ratio", names(wide), value = TRUE),
  weights = grep("^weight", names(wide), value = TRUE), method = "Buhlmann-Gisler"
)
print(c(fit$means[[1]], fit$unbiased), digits = 10)
