# What vignettes/analysis.R prints, as numbers: see README.md.
# Run in this folder: Rscript analysis.R
script <- "../../vignettes/analysis.R"
lines <- parse(script, keep.source = TRUE)
places <- vapply(attr(lines, "srcref"), function(ref) as.integer(ref)[1], 1L)
here <- new.env()
found <- NULL
for (i in seq_along(lines)) {
  result <- withVisible(suppressWarnings(eval(lines[[i]], here)))
  if (!result$visible) next
  value <- result$value
  numbers <- if (is.data.frame(value)) unlist(value) else as.numeric(as.matrix(value))
  found <- rbind(found, data.frame(line = places[i], value = as.numeric(numbers), row.names = NULL))
}
write.csv(found, "analysis.csv", row.names = FALSE)
