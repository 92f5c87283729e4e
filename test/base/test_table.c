/* The hash table: equal hashes, growth, failing allocations. */
#include "unit.h"

#include "base/alloc.h"
#include "base/table.h"

static bool same_number(const void *item, const void *key) {
    return *(const int *)item == *(const int *)key;
}

static void test_equal_hashes(void) {
    gqac_arena *arena = gqac_arena_create(0);
    gqac_table table;
    int items[100], other = 100;
    gqac_table_init(&table, arena);
    CU_ASSERT_PTR_NULL(gqac_table_find(&table, 7, same_number, &other));
    for (int i = 0; i < 100; i++) {
        items[i] = i;
        CU_ASSERT(gqac_table_add(&table, (uint64_t)(i % 3), &items[i]));
    }
    for (int i = 0; i < 100; i++)
        CU_ASSERT_PTR_EQUAL(gqac_table_find(&table, (uint64_t)(i % 3), same_number, &i), &items[i]);
    CU_ASSERT_PTR_NULL(gqac_table_find(&table, 1, same_number, &other));
    CU_ASSERT_PTR_NULL(gqac_table_find(&table, 3, same_number, &items[0]));
    gqac_arena_free(arena);
}

static uint64_t number_of(const gqac_table *table, uint64_t hash) {
    size_t at = (size_t)hash;
    const gqac_slot *slot = gqac_table_slot(table, hash, &at);
    return slot ? slot->value : 0;
}

static void test_numbers(void) {
    size_t live = gqac_alloc_live();
    gqac_table table = {0};
    for (uint64_t i = 1; i <= 100000; i++)
        CU_ASSERT(gqac_table_add_number(&table, gqac_hash_u64(0, i * i), i));
    for (uint64_t i = 1; i <= 100000; i++)
        CU_ASSERT_EQUAL(number_of(&table, gqac_hash_u64(0, i * i)), i);
    CU_ASSERT_EQUAL(number_of(&table, gqac_hash_u64(0, 50)), 0);
    CU_ASSERT_EQUAL(table.count, 100000);
    CU_ASSERT(table.reach < 100 && table.capacity >= 2 * table.count);
    for (uint64_t i = 0; i < 300; i++) /* keys that were chosen to collide */
        CU_ASSERT(gqac_table_add_number(&table, i << 40, 1));
    CU_ASSERT(table.reach >= 299);
    gqac_table_free(&table);
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
}

static void test_memory(void) {
    size_t live = gqac_alloc_live();
    gqac_table table = {0};
    gqac_alloc_fail_at(1, 0);
    CU_ASSERT_FALSE(gqac_table_reserve(&table, 1000));
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT(gqac_table_reserve(&table, 1000) && table.capacity == 2048);
    for (uint64_t i = 1; i <= 1024; i++)
        CU_ASSERT(gqac_table_add_number(&table, gqac_hash_u64(0, i), i));
    gqac_alloc_fail_at(1, 0);
    CU_ASSERT_FALSE(gqac_table_add_number(&table, 5, 5));
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT_EQUAL(number_of(&table, gqac_hash_u64(0, 1024)), 1024); /* unchanged */
    gqac_table_free(&table);
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
}

static const unit_case cases[] = {
    {"items of equal hashes stay apart", test_equal_hashes},
    {"numbers, and how far they lie from their place", test_numbers},
    {"allocations that fail", test_memory},
};

int main(int argc, char **argv) {
    return unit_run("table", cases, sizeof cases / sizeof *cases, argc, argv);
}
