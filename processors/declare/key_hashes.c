/* Hashes of many message keys in one call. Needs no headers of Python.

   `keys` has the bytes of all keys one after the other, `sizes` the number of bytes of each; `hashes` receives one hash for each. */
#include <stdint.h>

/* Austin Appleby's MurmurHash2 with the seed of Kafka's partitioner, without the sign bit, as Kafka's Utils.toPositive. */
void penstock_murmur2(const uint8_t *keys, const int64_t *sizes, int64_t count, uint32_t *hashes) {
    const uint32_t m = 0x5BD1E995;
    for (int64_t i = 0; i < count; i++) {
        int64_t left = sizes[i];
        uint32_t hash = 0x9747B28C ^ (uint32_t)left;
        for (; left >= 4; left -= 4, keys += 4) {
            /* Byte by byte: Kafka's order of bytes on every machine. */
            uint32_t word = keys[0] | (uint32_t)keys[1] << 8 | (uint32_t)keys[2] << 16 | (uint32_t)keys[3] << 24;
            word *= m;
            word = (word ^ word >> 24) * m;
            hash = hash * m ^ word;
        }
        if (left) {
            uint32_t rest = 0;
            for (int64_t at = left; at > 0; at--) rest = rest << 8 | keys[at - 1];
            hash = (hash ^ rest) * m;
            keys += left;
        }
        hash = (hash ^ hash >> 13) * m;
        hashes[i] = (hash ^ hash >> 15) & 0x7FFFFFFF;
    }
}

/* The absolute value of the signed 32-bit FNV-1a hash, as Sarama and librdkafka. */
void penstock_fnv1a(const uint8_t *keys, const int64_t *sizes, int64_t count, uint32_t *hashes) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t hash = 0x811C9DC5;
        for (int64_t at = 0; at < sizes[i]; at++) hash = (hash ^ *keys++) * 0x01000193;
        hashes[i] = hash < 0u - hash ? hash : 0u - hash;
    }
}
