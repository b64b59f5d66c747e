#!/usr/bin/env node
// Writes the lines that contain ERROR. For `penstock pipe`: a line that begins with the byte 0x1E is a checkpoint.
function outputs(line) {
  return line.includes("ERROR") ? [line] : [];
}

let rest = "";
process.stdin.setEncoding("utf8");
process.stdin.on("data", (chunk) => {
  const lines = (rest + chunk).split("\n"); // `readline` would also split a line at its carriage returns
  rest = lines.pop();
  const written = lines.flatMap((line) =>
    line.startsWith("\x1e") ? [line] : outputs(line), // a checkpoint is repeated after the outputs of all lines before it
  );
  process.stdout.write(written.map((line) => line + "\n").join(""));
});
