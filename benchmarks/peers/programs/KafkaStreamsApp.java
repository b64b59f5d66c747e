import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * The work in Kafka Streams: one process, state in RocksDB with changelog topics, a commit each second.
 *
 * <p>{@code java KafkaStreamsApp BOOTSTRAP (W1|W2|W3|W4) SOURCE SINK GROUP FOLDER MESSAGES THREADS}
 *
 * <p>Prints the time of the first message, and ends after the last.
 */
public final class KafkaStreamsApp {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** An event of the source. */
    public static final class Event {
        public long event_time;
        public String event;
        public String dim_id;
        public String topic;
        public String text;
    }

    /** The fields of a click that the filter keeps. */
    public record Click(long event_time, String dim_id, String topic) {}

    /** The number of a key's events in a window. */
    public record Count(String key, long window, long n) {}

    /** Prints the time of the first message, and opens a latch after the last. */
    private static final class Progress {
        private final AtomicLong handled = new AtomicLong();
        private final CountDownLatch done = new CountDownLatch(1);
        private final long wanted;

        Progress(long wanted) {
            this.wanted = wanted;
        }

        void handle() {
            long count = handled.incrementAndGet();
            if (count == 1) {
                System.out.printf("first %.3f%n", System.currentTimeMillis() / 1000.0);
            }
            if (count == wanted) {
                done.countDown();
            }
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        String work = arguments[1];
        Progress progress = new Progress(Long.parseLong(arguments[6]));
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, Event> events = builder.stream(
                arguments[2],
                Consumed.with(Serdes.String(), json(Event.class))
                        .withTimestampExtractor((read, before) -> ((Event) read.value()).event_time));
        events = events.peek((key, event) -> progress.handle());
        if (work.equals("W1") || work.equals("W4")) {
            events.filter((key, event) -> event.event.equals("click"))
                    .mapValues(event -> new Click(event.event_time, event.dim_id, event.topic))
                    .to(arguments[3], Produced.with(Serdes.String(), json(Click.class)));
        } else {
            events.groupByKey(Grouped.with(Serdes.String(), json(Event.class)))
                    .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(5), Duration.ofHours(1)))
                    .count(Materialized.with(Serdes.String(), Serdes.Long()))
                    .toStream()
                    .map((key, n) -> KeyValue.pair(key.key(), new Count(key.key(), key.window().start(), n)))
                    .to(arguments[3], Produced.with(Serdes.String(), json(Count.class)));
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings(arguments));
        streams.start();
        progress.done.await();
        // Closing commits: it flushes all results.
        streams.close();
    }

    private static Properties settings(String[] arguments) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[4]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[5]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, arguments[7]);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1000);
        settings.put(
                StreamsConfig.PROCESSING_GUARANTEE_CONFIG,
                arguments[1].equals("W4") ? StreamsConfig.EXACTLY_ONCE_V2 : StreamsConfig.AT_LEAST_ONCE);
        settings.put("auto.offset.reset", "earliest");
        return settings;
    }

    private static <T> Serde<T> json(Class<T> type) {
        return Serdes.serdeFrom((topic, value) -> encoded(value), (topic, bytes) -> decoded(bytes, type));
    }

    private static byte[] encoded(Object value) {
        try {
            return value == null ? null : JSON.writeValueAsBytes(value);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static <T> T decoded(byte[] bytes, Class<T> type) {
        try {
            return bytes == null ? null : JSON.readValue(bytes, type);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
