#!/usr/bin/env node
// Writes the lines that contain ERROR. For `penstock pipe`: a line that begins with the byte 0x1E is a checkpoint.
const readline = require("node:readline");

function outputs(line) {
  return line.includes("ERROR") ? [line] : [];
}

let written = [];
const input = readline.createInterface({ input: process.stdin, crlfDelay: Infinity });
input.on("line", (line) => {
  if (line.startsWith("\x1e")) {
    written.push(line); // after the outputs of all lines before it
    process.stdout.write(written.join("\n") + "\n");
    written = [];
  } else {
    written.push(...outputs(line));
  }
});
