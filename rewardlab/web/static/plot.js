// Draws curves into a canvas, in the colours of the page.

export const SMOOTHED = 10; // points that a smooth curve has the mean of

// Each point becomes the mean of those up to it.
export const smooth = (points) => points.map(([x], i) => {
  const part = points.slice(Math.max(0, i + 1 - SMOOTHED), i + 1);
  return [x, part.reduce((sum, [, y]) => sum + y, 0) / part.length];
});

export const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// Draws lines into a canvas; a line is broken where two of its points are more than `gap` apart.
export function plot(canvas, lines, { low, high, threshold, gap = Infinity, words, left, right }) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = +(canvas.dataset.height ??= canvas.height);
  if (width === 0) return;
  canvas.style.height = `${height}px`;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d"), all = lines.flatMap(({ points }) => points);
  pen.scale(scale, scale);
  pen.font = "11px system-ui, sans-serif";
  low ??= Math.min(...all.map(([, y]) => y));
  high ??= Math.max(...all.map(([, y]) => y));
  if (high === low) [low, high] = [low - 0.5, high + 0.5];
  const margin = 6 + Math.max(pen.measureText(words(low)).width, pen.measureText(words(high)).width);
  const first = Math.min(...all.map(([x]) => x)), span = Math.max(...all.map(([x]) => x)) - first || 1;
  const bottom = height - 16, x = (value) => margin + ((value - first) / span) * (width - margin - 4);
  const y = (value) => bottom - ((value - low) / (high - low)) * (bottom - 8);
  pen.fillStyle = color("soft");
  pen.strokeStyle = color("line");
  for (const value of [low, high]) {
    pen.textAlign = "right";
    pen.fillText(words(value), margin - 5, y(value) + 4);
    stroke(pen, [[margin, y(value)], [width, y(value)]]);
  }
  pen.textAlign = "left";
  pen.fillText(left, margin, height - 3);
  pen.textAlign = "right";
  pen.fillText(right, width - 2, height - 3);
  for (const line of lines) {
    pen.strokeStyle = pen.fillStyle = line.color;
    pen.lineWidth = line.faint ? 1 : 1.75;
    pen.globalAlpha = line.faint ? 0.35 : 1;
    pen.lineJoin = "round";
    const ends = line.points.flatMap(([a], i) => (i && a - line.points[i - 1][0] > gap ? [i] : []));
    [0, ...ends].forEach((from, i) => {
      const path = line.points.slice(from, ends[i]).map(([a, b]) => [x(a), y(Math.min(high, Math.max(low, b)))]);
      stroke(pen, path);
      if (path.length === 1) pen.fillRect(path[0][0] - 2, path[0][1] - 2, 4, 4);
      if (line.fill) {
        pen.globalAlpha = 0.12;
        pen.lineTo(path.at(-1)[0], bottom);
        pen.lineTo(path[0][0], bottom);
        pen.fill();
        pen.globalAlpha = 1;
      }
    });
    pen.globalAlpha = 1;
  }
  if (threshold !== undefined) {
    pen.strokeStyle = pen.fillStyle = color("bad");
    pen.setLineDash([5, 4]);
    stroke(pen, [[margin, y(threshold)], [width, y(threshold)]]);
    pen.setLineDash([]);
  }
}

function stroke(pen, path) {
  pen.beginPath();
  path.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.stroke();
}
