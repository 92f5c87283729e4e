/* Tiles of few rows, as in decode: an item has one key of each tile and up to four rows. */
#define NAME         attend_few
#define ATTEND_ROWS  ATTEND_FEW_ROWS
#define ATTEND_ITEMS ATTEND_FEW_ITEMS
#define KEY_ITEMS    64
#define CHUNK        64
#if ATTEND_SIZE <= 64
#define COLUMN_ITEMS 16
#elif ATTEND_SIZE <= 128
#define COLUMN_ITEMS 32
#else
#define COLUMN_ITEMS 64
#endif
