#!/usr/bin/env perl
# Writes the lines that contain ERROR. For `penstock pipe`: a line that begins with the byte 0x1E is a checkpoint.
use strict;
use warnings;
use IO::Handle;

sub outputs {
    my ($line) = @_;
    return $line =~ /ERROR/ ? ($line) : ();
}

while (my $line = <STDIN>) {
    if ($line =~ /^\x1e/) {
        print $line;    # after the outputs of all lines before it
        STDOUT->flush();
    } else {
        print outputs($line);
    }
}
