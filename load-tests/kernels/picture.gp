# One row a family, one mark a peer: how many times as long the peer takes as Kiln (geometric means). usage: gnuplot -e "data='T'; picture='P'" picture.gp
stats data using 1 nooutput
families = STATS_max + 1
stats data using 2 nooutput
peers = STATS_max + 1
set terminal pngcairo size 1100, 160 + 34 * families font "sans,10"
set output picture
set logscale x
set xlabel "the peer's time over Kiln's: right of 1, Kiln is faster"
set yrange [families - 0.5 : -0.5]
set grid xtics ytics
set arrow from 1, graph 0 to 1, graph 1 nohead lw 2
set key outside right
name(p) = system(sprintf("awk -F'\\t' '$2 == %d {print $5; exit}' %s", p, data))
set datafile separator "\t"
plot for [p = 0 : peers - 1] data using ($2 == p ? $3 : 1/0):1:ytic(4) with points pt p + 4 ps 1.4 title name(p)
