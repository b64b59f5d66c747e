import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.shaded.com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import org.apache.kafka.shaded.com.google.protobuf.Descriptors.Descriptor;
import org.apache.kafka.shaded.com.google.protobuf.Descriptors.FileDescriptor;
import org.apache.kafka.shaded.com.google.protobuf.DynamicMessage;
import org.apache.kafka.shaded.com.google.protobuf.Timestamp;
import org.apache.kafka.shaded.com.google.protobuf.TimestampProto;

/** A producer and a consumer in Java of a topic with Avro keys and Protobuf values of a schema registry. */
public class RegistryClients {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static String registry;
    private static String login;

    /** Arguments: produce or consume, the brokers, the registry, its login, the topic; to produce also the .proto file, the events and the keys. */
    public static void main(String[] arguments) throws Exception {
        registry = arguments[2];
        login = "Basic " + Base64.getEncoder().encodeToString(arguments[3].getBytes());
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[1]);
        if (arguments[0].equals("produce")) {
            produce(settings, arguments);
        } else {
            consume(settings, arguments[4]);
        }
    }

    private static void produce(Properties settings, String[] arguments) throws Exception {
        String topic = arguments[4];
        int keyId = register(topic + "-key", Map.of("schema", "\"string\""));
        String proto = Files.readString(Path.of(arguments[5]));
        int valueId = register(topic + "-value", Map.of("schema", proto, "schemaType", "PROTOBUF"));
        Descriptor order = file(valueId).findMessageTypeByName("Order");
        int events = Integer.parseInt(arguments[6]);
        int keys = Integer.parseInt(arguments[7]);
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int number = 0; number < events; number++) {
                String key = "k" + number % keys;
                Timestamp at = Timestamp.newBuilder().setSeconds(1_700_000_000L + number).build();
                DynamicMessage message = DynamicMessage.newBuilder(order)
                    .setField(order.findFieldByName("id"), key)
                    .setField(order.findFieldByName("at"), at)
                    .setField(order.findFieldByName("cents"), (long) number)
                    .build();
                byte[] indexes = {0};
                producer.send(new ProducerRecord<>(topic, framed(keyId, new byte[0], avro(key)), framed(valueId, indexes, message.toByteArray())));
            }
        }
    }

    private static void consume(Properties settings, String topic) throws Exception {
        settings.put("isolation.level", "read_committed");
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(one -> new TopicPartition(topic, one.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println(line(record));
                }
            }
        }
    }

    private static String line(ConsumerRecord<byte[], byte[]> record) throws Exception {
        ByteBuffer key = unframed(record.key());
        Schema schema = new Schema.Parser().parse(schema(key.getInt(), "").get("schema").asText());
        var decoder = DecoderFactory.get().binaryDecoder(record.key(), 5, record.key().length - 5, null);
        Object decoded = new GenericDatumReader<>(schema).read(null, decoder);
        ByteBuffer value = unframed(record.value());
        FileDescriptor file = file(value.getInt());
        int count = value.get() >> 1; // few indexes, each below 64
        Descriptor total = file.getMessageTypes().get(count == 0 ? 0 : value.get() >> 1);
        byte[] body = new byte[value.remaining()];
        value.get(body);
        DynamicMessage message = DynamicMessage.parseFrom(total, body);
        Object cents = message.getField(total.findFieldByName("cents"));
        Object id = message.getField(total.findFieldByName("id"));
        return String.join("\t", decoded.toString(), total.getFullName(), id.toString(), cents.toString(), "" + record.partition());
    }

    private static ByteBuffer unframed(byte[] content) {
        ByteBuffer buffer = ByteBuffer.wrap(content);
        if (buffer.get() != 0) {
            throw new IllegalStateException("no schema id");
        }
        return buffer;
    }

    private static byte[] framed(int id, byte[] indexes, byte[] content) {
        return ByteBuffer.allocate(5 + indexes.length + content.length).put((byte) 0).putInt(id).put(indexes).put(content).array();
    }

    private static byte[] avro(String key) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(out, null);
        new GenericDatumWriter<>(Schema.create(Schema.Type.STRING)).write(key, encoder);
        encoder.flush();
        return out.toByteArray();
    }

    private static FileDescriptor file(int id) throws Exception {
        byte[] bytes = Base64.getDecoder().decode(schema(id, "?format=serialized").get("schema").asText());
        FileDescriptor[] imported = {TimestampProto.getDescriptor()};
        return FileDescriptor.buildFrom(FileDescriptorProto.parseFrom(bytes), imported);
    }

    private static JsonNode schema(int id, String query) throws Exception {
        return send(request("/schemas/ids/" + id + query).GET());
    }

    private static int register(String subject, Map<String, String> schema) throws Exception {
        var body = HttpRequest.BodyPublishers.ofString(JSON.writeValueAsString(schema));
        return send(request("/subjects/" + subject + "/versions").POST(body)).get("id").asInt();
    }

    private static HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(URI.create(registry + path)).header("Authorization", login);
    }

    private static JsonNode send(HttpRequest.Builder request) throws Exception {
        HttpResponse<String> response = HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() != 200) {
            throw new IllegalStateException(response.body());
        }
        return JSON.readTree(response.body());
    }
}
