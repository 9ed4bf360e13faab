# Rscript relrisk.R FOLDER: spatstat's kernel estimate of the probability of type "b", and its standard error, for every
# FOLDER/*.points.csv (x, y, mark) in the unit square, at the places of FOLDER/places.csv.
suppressMessages(library(spatstat.explore))
folder <- commandArgs(trailingOnly = TRUE)[1]
places <- read.csv(file.path(folder, "places.csv"))
for (path in Sys.glob(file.path(folder, "*.points.csv"))) {
  data <- read.csv(path)
  pattern <- ppp(data$x, data$y, window = square(1), marks = factor(data$mark, levels = c("a", "b")))
  found <- relrisk(pattern, sigma = bw.relrisk(pattern), se = TRUE)  # the bandwidth by likelihood cross-validation
  at <- lapply(found, function(map) lookup.im(map, places$x, places$y, naok = TRUE))
  write.csv(data.frame(estimate = at$estimate, se = at$SE), sub("points", "kernel", path), row.names = FALSE)
}
