#!/usr/bin/env python3
"""Draws docs/demo.svg from a run: tradeguard demo --once --output json | docs/demo_picture.py > docs/demo.svg"""
import json
import sys

WIDTH, LEFT, RIGHT, TOP = 900, 70, 20, 40
CHART, BAND, GAP = 190, 26, 14
COLOURS = {"Healthy": "#2f9e6e", "Pending": "#d9a21b", "Active": "#cc4b37", "Recovering": "#2b7fb8"}
THRESHOLD = 0.8


def main():
    document = json.load(sys.stdin)
    timeline = [moment for moment in document["timeline"] if moment["p99Seconds"] is not None]
    end = timeline[-1]["t"]
    highest = max(moment["p99Seconds"] for moment in timeline) * 1.1

    def x(t):
        return LEFT + (WIDTH - LEFT - RIGHT) * t / end

    def y(value):
        return TOP + CHART * (1 - value / highest)

    height = TOP + CHART + GAP + BAND + 42
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" fill="#333" font-weight="bold">P99 of order processing in one run of the demo</text>',
    ]
    step = 1 if highest > 2 else 0.5
    value = 0.0
    while value <= highest:
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#e4e4e4"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end" fill="#666">{value:g} s</text>')
        value += step
    limit = y(THRESHOLD)
    out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{limit:.1f}" y2="{limit:.1f}" stroke="#cc4b37" stroke-dasharray="5 4"/>')
    out.append(f'<text x="{WIDTH - RIGHT}" y="{limit - 6:.1f}" text-anchor="end" fill="#cc4b37">800 ms</text>')
    points = " ".join(f'{x(moment["t"]):.1f},{y(moment["p99Seconds"]):.1f}' for moment in timeline)
    out.append(f'<polyline points="{points}" fill="none" stroke="#222" stroke-width="2"/>')
    top = TOP + CHART + GAP
    start = 0
    moments = document["timeline"]
    for index in range(1, len(moments) + 1):
        here = (moments[start]["phase"], moments[start].get("stage"))
        if index == len(moments) or (moments[index]["phase"], moments[index].get("stage")) != here:
            left = x(moments[start]["t"])
            right = x(moments[index]["t"] if index < len(moments) else end)
            label = here[1] or here[0]
            out.append(f'<rect x="{left:.1f}" y="{top}" width="{max(right - left, 1):.1f}" height="{BAND}" fill="{COLOURS[here[0]]}" stroke="#fff"/>')
            if right - left > 8 * len(label):
                out.append(f'<text x="{(left + right) / 2:.1f}" y="{top + 17}" text-anchor="middle" fill="#fff">{label}</text>')
            start = index
    for minute in range(0, int(end // 60) + 1, 2):
        out.append(f'<text x="{x(minute * 60):.1f}" y="{top + BAND + 18}" text-anchor="middle" fill="#666">{minute} min</text>')
    out.append("</svg>")
    print("\n".join(out))


main()
