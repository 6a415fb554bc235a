# Seconds of glmer() on 10,000 groups of 10 counts, by one node and by 25; see test_counts.py, which
# writes the file. Run as: Rscript glmer.R counts.csv
library(lme4)
rows <- read.csv(commandArgs(TRUE)[1])
rows$g <- factor(rows$g)
for (nodes in c(1, 25)) {
  seconds <- system.time(fit <- glmer(y ~ x + (1 | g), rows, poisson, nAGQ = nodes))
  cat(nodes, "nodes:", seconds[["user.self"]], "s,", fixef(fit), "\n")
}
