/* Tiles of many rows, as in prefill: each item computes four keys of each tile, and two or four
 * rows. */
#define NAME         attend_many
#define ATTEND_ROWS  ATTEND_MANY_ROWS
#define ATTEND_ITEMS ATTEND_MANY_ITEMS
#define KEY_ITEMS    16
#define CHUNK        32
#define COLUMN_ITEMS 16
