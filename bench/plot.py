# SPDX-License-Identifier: Apache-2.0
"""Draw pictures as SVG with gnuplot."""
import subprocess

# Okabe and Ito's colours, which most colour-blind readers can distinguish.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]


def quote(text):
    return "'" + str(text).replace("'", "''") + "'"


def draw(path, title, y_label, commands):
    settings = f"""
        set terminal svg size 760,480 font 'sans-serif,15' background 'white'
        set output {quote(path)}
        set title {quote(title)} noenhanced
        set ylabel {quote(y_label)} noenhanced
        set yrange [0:*]
        set offsets graph 0, 0, graph 0.05, 0
        set grid ytics lc '#dddddd'
        set border 3
        set tics nomirror
        set key above maxrows 3 noenhanced
        """
    subprocess.run(["gnuplot"], input=settings + commands, text=True, check=True)


def block(name, rows):
    return f"{name} << EOD\n" + "\n".join(" ".join(map(str, row)) for row in rows) + "\nEOD\n"


def join_equal(series):
    """Merge series with the same points into one series with all their names. Otherwise the series
    that is drawn last would hide the others."""
    names = {}
    for name, points in series.items():
        names.setdefault(tuple(points), []).append(name)
    return {" = ".join(group): points for points, group in names.items()}


def lines(path, title, x_label, y_label, series):
    """Draw `series`, {name: [(x, y), ...]}, with a logarithmic x axis (base 2)."""
    series = join_equal(series)
    first = [x for x, _ in next(iter(series.values()))]
    commands = f"set xlabel {quote(x_label)} noenhanced\nset logscale x 2\n"
    commands += "".join(block(f"$d{i}", points) for i, points in enumerate(series.values()))
    commands += (f"set xtics ({', '.join(map(str, first))})\nset xrange "
                 f"[{first[0] * 0.9}:{first[-1] * 1.1}]\n")
    parts = [f"$d{i} with linespoints lc '{COLOURS[i % len(COLOURS)]}' lw 2 pt {i + 4} ps 0.9 "
             f"title {quote(name)}"
             for i, name in enumerate(series)]
    draw(path, title, y_label, commands + "plot " + ", ".join(parts) + "\n")


def bars(path, title, y_label, labels, groups):
    """Draw `groups`, {name: a value for each label}. At each label, the bars of all groups stand
    side by side, with their values above."""
    width = 0.8 / len(groups)
    commands = f"set boxwidth {width * 0.9}\nset style fill solid\n"
    commands += "set xtics (" + ", ".join(f"{quote(label)} {x}"
                                          for x, label in enumerate(labels)) + ")\n"
    parts = []
    for i, (name, values) in enumerate(groups.items()):
        middle = (i - (len(groups) - 1) / 2) * width
        commands += block(f"$d{i}", [(x + middle, y) for x, y in enumerate(values)])
        parts += [f"$d{i} with boxes lc '{COLOURS[i]}' title {quote(name)}",
                  f"$d{i} using 1:2:(sprintf('%.1f', $2)) with labels offset 0,0.7 notitle"]
    commands += f"set xrange [-0.6:{len(labels) - 0.4}]\n"
    draw(path, title, y_label, commands + "plot " + ", ".join(parts) + "\n")
