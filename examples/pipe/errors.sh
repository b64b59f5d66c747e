#!/bin/sh
# Writes the lines that contain ERROR. For `penstock pipe`: a line that begins with the byte 0x1E is a checkpoint.
checkpoint=$(printf '\036')

outputs() {
    case $1 in
        *ERROR*) printf '%s\n' "$1" ;;
    esac
}

while IFS= read -r line; do
    case $line in
        "$checkpoint"*) printf '%s\n' "$line" ;; # after the outputs of all lines before it
        *) outputs "$line" ;;
    esac
done
