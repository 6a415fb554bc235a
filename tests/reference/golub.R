# Genes of two leukaemias, and genes of cells with and without HIV: what R packages find in them.
#
#   Rscript golub.R        (in this folder; writes golub*.csv, golub.csv.gz, hiv.csv.gz, hiv_rates.csv)
#
# limma and multtest are of Bioconductor, fdrtool, locfdr and qvalue of CRAN or Bioconductor. Values are
# rounded before anything is computed from them: three digits of log expressions, four of statistics.

suppressMessages({library(multtest); library(limma); library(qvalue); library(fdrtool); library(locfdr)})
compressed <- function(table, file) {
  con <- gzfile(file, "wb", compression = 9)
  write.csv(table, con, row.names = FALSE, quote = FALSE)
  close(con)
}
fits <- NULL
note <- function(data, package, name, value) {
  fits <<- rbind(fits, data.frame(data, package, name, value = as.numeric(value)))
}
rates <- function(data, z) {  # what locfdr and fdrtool find in z-values
  empirical <- locfdr(z, plot = 0)
  theory <- locfdr(z, nulltype = 0, plot = 0)
  for (kind in c("mlest", "mleSD", "thest")) for (name in colnames(empirical$fp0))
    note(data, "locfdr", paste(kind, name), empirical$fp0[kind, name])
  note(data, "locfdr", "mlest rates to .2", sum(empirical$fdr <= 0.2))
  note(data, "locfdr", "thest rates to .2", sum(theory$fdr <= 0.2))
  tool <- fdrtool(z, plot = FALSE, verbose = FALSE)
  note(data, "fdrtool", "p0", tool$param[1, "eta0"])
  note(data, "fdrtool", "sigma", tool$param[1, "sd"])
  note(data, "fdrtool", "rates to .2", sum(tool$lfdr <= 0.2))
  data.frame(empirical = empirical$fdr, theoretical = theory$fdr, fdrtool = tool$lfdr)
}

data(golub)
golub <- round(golub, 3)
colnames(golub) <- paste0(c("all", "aml")[golub.cl + 1], ave(golub.cl, golub.cl, FUN = seq_along))
compressed(data.frame(gene = golub.gnames[, 3], golub), "golub.csv.gz")
fit <- lmFit(golub, cbind(1, golub.cl))
moderated <- eBayes(fit)
note("golub", "limma", "df.prior", moderated$df.prior)
note("golub", "limma", "s2.prior", moderated$s2.prior)
std.error <- fit$sigma * fit$stdev.unscaled[, 2]
t <- fit$coefficients[, 2] / std.error
p <- 2 * pt(-abs(t), fit$df.residual)
z <- qnorm(pt(t, fit$df.residual))
bh <- p.adjust(p, "BH")
storey <- qvalue(p)
note("golub", "stats", "BH to .05", sum(bh <= 0.05))
note("golub", "qvalue", "p0", storey$pi0)
note("golub", "qvalue", "p0 beyond .5", qvalue(p, lambda = 0.5)$pi0)
note("golub", "qvalue", "q to .05", sum(storey$qvalues <= 0.05))
note("golub", "qvalue", "moderated q to .05", sum(qvalue(moderated$p.value[, 2])$qvalues <= 0.05))
found <- rates("golub", z)
genes <- data.frame(gene = golub.gnames[, 3], difference = fit$coefficients[, 2], std.error,
                    df = fit$df.residual, t, p, z, moderated.error = std.error * t / moderated$t[, 2],
                    moderated.t = moderated$t[, 2], moderated.df = moderated$df.total,
                    moderated.p = moderated$p.value[, 2], bh, q = storey$qvalues, found)
some <- seq(1, nrow(genes), 10)
genes[-1] <- signif(genes[-1], 10)
write.csv(genes[some, ], "golub_genes.csv", row.names = FALSE, quote = FALSE)

data(hivdata)
z <- round(hivdata, 4)
compressed(data.frame(z), "hiv.csv.gz")
found <- data.frame(z, signif(rates("hiv", z), 8))
write.csv(found[seq(1, length(z), 20), ], "hiv_rates.csv", row.names = FALSE, quote = FALSE)
fits$value <- signif(fits$value, 10)
write.csv(fits, "golub_fits.csv", row.names = FALSE, quote = FALSE)
